"""Models whose configuration has no hidden size of its own (all model types of transformers 5.24)."""

from __future__ import annotations

_INSIDE = """
    aimv2 align altclip apertus1p5 aria audioflamingo3 aya_vision blip blip-2 chinese_clip clip clipseg clvp
    cohere2_vision cohere_compass cosmos3_edge cosmos3_omni deepseek_ocr2 deepseek_vl deepseek_vl_hybrid
    diffusion_gemma dots3_note embedding_gemma2 emu3 ernie4_5_vl_moe exaone4_5 fast_vlm florence2 fun_asr_nano
    fuyu gemma3 gemma3n gemma4 gemma4_unified gemma4_unified_assistant glm46v glm4v glm4v_moe glm5_next
    glm_image glm_ocr glmasr glmga got_ocr2 granite4_vision granite_docling granite_speech granite_speech_plus
    groupvit hunyuan_vl hy_v4_vl hyperclovax_vision_v2 idefics2 idefics3 inkling2 inkling2_loop
    inkling_mm_model instructblip instructblipvideo internvl janus kimi_k25 kosmos-2 kosmos-2.5 lfm2_vl
    lfm3_vl lighton_ocr llama4 llava llava_next llava_next_video llava_onevision metaclip_2 minicpm_ocr
    minicpmv4_6 minicpmv4_7 minimax_m3_vl mistral3 mistral_large4 mllama modernvbert molmo2
    moss_transcribe_diarize muse_glimmer muse_spark musicflamingo nemo_speechlm nemotron_h_omni omdet-turbo
    omniasr owlv2 owlvit paddleocr_vl pe_audio pe_audio_video pe_video perception_lm pix2struct pp_chart2table
    pp_formulanet qianfan_ocr qwen2_5_omni_thinker qwen2_5_vl qwen2_audio qwen2_vl qwen3_5 qwen3_5_moe
    qwen3_asr qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen4_exp sam3 sam3_lite_text shieldgemma2 siglip
    siglip2 smolvlm step3p7 t5gemma2_encoder tipsv2 ultravbert unlimited_ocr vibevoice vibevoice_asr
    video_llama_3 video_llava videoprism vipllava vision-text-dual-encoder xclip
"""
INSIDE = frozenset(_INSIDE.split())
"""By model_type: only its text_config has one."""
_NONE = """
    align_vision_model apertus1p5_vision_tokenizer bark blt canary chameleon_vqgan chmv2 colmodernvbert
    colpali colqwen2 cvt deepseek_ocr2_vision depth_anything depth_pro dia edgetam edgetam_video
    edgetam_vision_model efficientnet encoder-decoder fastspeech2_conformer_hifigan
    fastspeech2_conformer_with_hifigan florence_vision gemma4_unified_vision glm_image_vqmodel
    granite_speech5_ctc idefics_perciever janus_vqgan lasr_ctc lw_detr mobilenet_v1 mobilenet_v2 mobilevitv2
    musicgen musicgen_melody nemotron3_5_asr nemotron3_diarization nemotron_asr_streaming omniasr_ctc
    parakeet_ctc parakeet_rnnt parakeet_tdt perceiver pi0 pp_lcnet pp_lcnet_v3 pp_lcnet_v4 pp_ocrv5_mobile_det
    pp_ocrv5_server_det pp_ocrv6_medium_det pp_ocrv6_small_det prompt_depth_anything qwen2_5_omni
    qwen2_5_omni_bigvgan qwen2_5_omni_token2wav qwen3_omni_moe rag rf_detr sam sam2 sam2_video
    sam2_vision_model sam3_tracker sam3_tracker_video sam3_video sam3_vision_model sam_hq sapiens2_head
    speech-encoder-decoder speecht5_hifigan superpoint swiftformer t5gemma t5gemma2 timm_backbone timm_wrapper
    tipsv2_dpt univnet unlimited_ocr_vision uvdoc uvdoc_backbone vision-encoder-decoder vitpose zoedepth
"""
NONE = frozenset(_NONE.split())
"""By model_type: not even that has one."""

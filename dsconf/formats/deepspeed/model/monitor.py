"""Where metrics go: the sections `tensorboard`, `wandb`, `comet` and `csv_monitor`."""

from __future__ import annotations

from typing import Annotated

from dsconf.formats.key import Key
from dsconf.formats.section import PydanticSection


class TensorBoard(PydanticSection):
    """Metrics for TensorBoard."""

    enabled: Annotated[bool, Key()] = False
    """Write metrics; needs the package tensorboard."""
    output_path: Annotated[str, Key()] = ""
    """The folder for the logs. Left empty it lies below the working directory."""
    job_name: Annotated[str, Key()] = "DeepSpeedJobName"
    """The name of the run, a folder inside output_path."""


class Wandb(PydanticSection):
    """Metrics for Weights & Biases."""

    enabled: Annotated[bool, Key()] = False
    """Send metrics; needs the package wandb."""
    group: Annotated[str | None, Key()] = None
    """The group that the run belongs to."""
    team: Annotated[str | None, Key()] = None
    """The team that the run belongs to."""
    project: Annotated[str, Key()] = "deepspeed"
    """The project that the run belongs to."""


class CsvMonitor(PydanticSection):
    """Metrics in CSV files."""

    enabled: Annotated[bool, Key()] = False
    """Write metrics, a file for each."""
    output_path: Annotated[str, Key()] = ""
    """The folder for the files. Left empty it lies below the working directory."""
    job_name: Annotated[str, Key()] = "DeepSpeedJobName"
    """The name of the run, a folder inside output_path."""


class Comet(PydanticSection):
    """Metrics for Comet. What is left out here, Comet takes from its own settings and variables."""

    enabled: Annotated[bool, Key()] = False
    """Send metrics; needs the package comet_ml, version 3.41.0 or later."""
    samples_log_interval: Annotated[int, Key(unit="samples")] = 100
    """Samples between two values that are sent."""
    project: Annotated[str | None, Key()] = None
    """The project that the experiment belongs to."""
    workspace: Annotated[str | None, Key()] = None
    """The workspace that the project belongs to."""
    api_key: Annotated[str | None, Key()] = None
    """The secret key of the account; better kept in the variable COMET_API_KEY."""
    experiment_name: Annotated[str | None, Key()] = None
    """A name for the experiment."""
    experiment_key: Annotated[str | None, Key()] = None
    """Names the experiment itself: 32 to 50 letters and digits."""
    online: Annotated[bool | None, Key()] = None
    """false keeps the data on this machine; left out, it is sent."""
    mode: Annotated[str | None, Key()] = None
    """How the experiment starts: "get" goes on with the one that experiment_key names, "create" begins a new one,
    "get_or_create", the default, does what is possible."""

"""Makes the modules beside this file importable from every test: pytest puts this folder on sys.path."""

from hypothesis import settings

# A loaded machine is slow now and then; how often it was is no finding.
settings.register_profile("dsconf", deadline=None)
settings.load_profile("dsconf")

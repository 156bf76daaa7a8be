"""Makes `scripts.benchmarks` importable, which no package of ours contains."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:  # `python -m pytest` has it there already, plain `pytest` has not
    sys.path.append(_ROOT)

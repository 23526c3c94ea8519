"""`python -m scripts.fit_load_shape RATES.csv[.gz]`: the law of a service's load, as a document that `Shape` reads."""

import argparse
import gzip
import sys
from pathlib import Path

from fleet.documents import write_model
from power.workload import fitted, read_rates


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.fit_load_shape", description=__doc__)
    parser.add_argument("rates", type=Path, help="windows: their start in seconds, and their rate")
    path: Path = parser.parse_args().rates
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rates_rps, step_s = read_rates(text, name=path.name)
    print(write_model(fitted(rates_rps, step_s, name=path.name.partition(".")[0])), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

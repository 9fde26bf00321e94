"""Run one fairseq program as a job of a study: `train` or `generate`; or `copy` a trained model.

    python studies/fairseq_job.py train --data DATA --model MODEL --log LOG --label LABEL -- FLAGS

See `fairseq_plugin/running.py`, which does the work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# Run as a file, not as a module: the checkout may have any name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_prep.lib.prepared import PreparedCorpus  # noqa: E402
from headprune.errors import exit_status  # noqa: E402
from studies.plugin import running  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    options, flags = _parse(arguments)
    job = running.Job(
        label=options.label,
        log=options.log,
        threads=options.threads,
        precision=options.precision,
        processes=options.processes,
    )
    return exit_status(_run, job, options, flags)


def _run(job: running.Job, options: argparse.Namespace, flags: Sequence[str]) -> None:
    """Run the step."""
    corpus = PreparedCorpus.load(options.data)
    if options.step == "train":
        running.train(
            job,
            flags,
            data=corpus.binarised,
            languages=corpus.languages,
            model=options.model,
            depends=options.depends,
            keep_checkpoints=options.keep_checkpoints,
            closed_plan=options.closed_plan,
        )
    elif options.step == "copy":
        running.copy_baseline(
            job,
            flags,
            checkpoint=options.checkpoint,
            data=corpus.binarised,
            languages=corpus.languages,
            model=options.model,
        )
    else:
        running.generate(
            job,
            flags,
            corpus=corpus,
            model=options.model,
            output=options.output,
            plan=options.head_plan,
            form=options.head_form,
        )


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    given = list(sys.argv[1:] if arguments is None else arguments)
    separator_index = given.index("--") if "--" in given else len(given)

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int, default=1, help="CPU threads")
    common.add_argument(
        "--precision",
        choices=running.PRECISIONS,
        default="fp32",
        help="precision on a GPU; a CPU always computes in fp32",
    )
    common.add_argument("--data", type=Path, required=True, help="prepared data: bin/, prep.json")
    common.add_argument("--log", type=Path, required=True, help="file for fairseq's output")
    common.add_argument("--label", required=True, help="name of the job on the terminal")

    parser = argparse.ArgumentParser(description=__doc__)
    parser.set_defaults(processes=1)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("train", parents=[common], help="train or fine-tune; flags after --")
    step.add_argument(
        "--model",
        type=Path,
        required=True,
        help="file for the best model; checkpoints go to the folder training beside it",
    )
    step.add_argument(
        "--depends",
        type=Path,
        nargs="*",
        default=[],
        help="files that the training starts from; if they change, it begins anew",
    )
    step.add_argument(
        "--keep-checkpoints",
        action="store_true",
        help="keep the checkpoints of the finished training, to train it longer",
    )
    step.add_argument(
        "--processes", type=int, default=1, help="processes of torchrun, one for each GPU"
    )
    step.add_argument(
        "--closed-plan",
        type=Path,
        help="file for the plan of the units whose learned gates are open; the model has no others",
    )
    step = steps.add_parser(
        "copy", parents=[common], help="check and copy a trained model; its flags after --"
    )
    step.add_argument("--checkpoint", type=Path, required=True, help="the trained model")
    step.add_argument("--model", type=Path, required=True, help="file for the copy")
    step = steps.add_parser("generate", parents=[common], help="translate the test set")
    step.add_argument("--model", type=Path, required=True, help="checkpoint to translate with")
    step.add_argument("--output", type=Path, required=True, help="file for fairseq's output")
    step.add_argument("--head-plan", type=Path, help="prune the model by this plan")
    step.add_argument(
        "--head-form", choices=("remove", "mask"), default="remove", help="form of the pruning"
    )
    return parser.parse_args(given[:separator_index]), given[separator_index + 1 :]


if __name__ == "__main__":
    sys.exit(main())

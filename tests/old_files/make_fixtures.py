"""Write a small file of every kind that headprune 0.1.0 leaves with its users.

    python -m tests.old_files.make_fixtures FOLDER

The files in ``files`` were made so, by version 0.1.0, and stay as they are: they stand for the
files that users have. A later version would write other ones, so run this only to add a kind of
file, and copy that one alone.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, BartConfig, BertConfig

from headprune import HeadPlan
from tests.hf_plugin.made import WORDS, write_model

ROOT = Path(__file__).resolve().parents[2]

SIZES = " ".join(
    f"--{side}-embed-dim 8 --{side}-ffn-embed-dim 8 --{side}-attention-heads 4 --{side}-layers 2"
    for side in ("encoder", "decoder")
)
TRAIN = (
    "--source-lang en --target-lang de --cpu --optimizer adam --lr 2e-2 --dropout 0 "
    "--max-tokens 600 --seed 1 --no-epoch-checkpoints --num-workers 0 --share-all-embeddings"
)
PLUGIN = "--user-dir fairseq_plugin --arch transformer_headpruned_tiny"
SHAPE = "--shape ES=4x2 --shape ED=4x2 --shape DS=4x2"


def main(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True)
    # Checkpoints name the plugin's folder, so it gets a name that is the same everywhere.
    (folder / "fairseq_plugin").symlink_to(ROOT / "fairseq_plugin")
    run = Runner(folder)
    plans(run)
    checkpoints(run)
    scores(run)
    translation_results(run)
    hugging_face_folders(run)
    glue_results(run)
    comparisons(run)
    (folder / "fairseq_plugin").unlink()
    tidy(folder)


class Runner:
    """Run command lines in the folder of the files, so that all paths in these are relative."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, program: str, options: str) -> None:
        command = {
            "headprune": [sys.executable, "-m", "headprune.cli"],
            "fairseq-train": [sys.executable, "-m", "fairseq_cli.train"],
            "numbers.sh": [str(ROOT / "data_prep" / "numbers.sh")],
        }[program]
        subprocess.run(
            [*command, *shlex.split(options)],
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )

    def path(self, name: str) -> Path:
        """A file of the folder, which may not be there yet; its parent is."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def plans(run: Runner) -> None:
    """Plans of one component and of several, by every way to choose heads."""
    run.path("plans/x")
    run("headprune", f"plan {SHAPE} --percent 50 --seed 1 -o plans/random.json")
    uneven = "--keep ES=40 --keep ED=13 --keep DS=21 --seed 2"
    run("headprune", f"plan {SHAPE} {uneven} -o plans/uneven.json")
    run("headprune", "plan --shape ES=4x2 --prune 'top 1' -o plans/encoder.json")
    run("headprune", "plan --shape ES=16,12,4 --percent 40 --seed 3 -o plans/wide.json")


def checkpoints(run: Runner) -> None:
    """Prepared data, and fairseq checkpoints of all kinds."""
    run("numbers.sh", "--out data --pair en-de --train 80 --valid 12 --test 12 --merges 40")
    run.path("fairseq/x")
    once = f"{SIZES} {TRAIN} --max-epoch 30"
    small = "--no-last-checkpoints --no-save-optimizer-state"
    run("fairseq-train", f"data/bin --arch transformer {once} {small} --save-dir train-stock")
    shutil.move(run.path("train-stock/checkpoint_best.pt"), run.path("fairseq/stock.pt"))
    for form in ("remove", "mask"):
        run(
            "headprune",
            f"prune fairseq/stock.pt --plan plans/uneven.json --form {form} -o fairseq/{form}.pt",
        )
    layers = "--encoder-layers-to-keep 1 --decoder-layers-to-keep 0 --es-heads 42"
    run(
        "fairseq-train",
        f"data/bin {PLUGIN} {layers} {once} {small} --finetune-from-model fairseq/stock.pt "
        "--max-epoch 2 --save-dir train-layers",
    )
    shutil.move(run.path("train-layers/checkpoint_best.pt"), run.path("fairseq/layers.pt"))
    # Of a training to be resumed: with the optimizer's state.
    heads = "--es-heads 1 --ed-heads 2 --ds-heads 0 --head-seed 3 --encoder-layers 1"
    run(
        "fairseq-train",
        f"data/bin {PLUGIN} {SIZES} {TRAIN} {heads} --decoder-layers 1 --max-epoch 1 "
        "--save-dir fairseq/training",
    )
    run.path("fairseq/training/checkpoint_best.pt").unlink()
    run("headprune", "export fairseq/remove.pt --to ctranslate2 -o ctranslate2")


def scores(run: Runner) -> None:
    """Score files of version 2, without and with p-values, and of version 1."""
    run(
        "headprune",
        "scores fairseq/stock.pt --score gradient --score ablation --score entropy -o scores",
    )
    content = json.loads(run.path("scores/gradient.json").read_text())
    # What version 1 called `gradient` is `gradient-raw` since version 2.
    content["version"] = 1
    del content["settings"]["normalised"]
    run.path("scores/version1.json").write_text(json.dumps(content, indent=1) + "\n")


def translation_results(run: Runner) -> None:
    """Results of made-up translations with their table: both seeds of a study of 50%."""
    reference = run.path("translation/raw/test.de")
    lines = [f"House number {n} stands in street {n * 7 % 50} of the town." for n in range(20)]
    reference.write_text("".join(f"{line}\n" for line in lines))
    run("headprune", f"plan {SHAPE} --percent 0 --seed 1 -o translation/full.json")
    models = [("baseline", "baseline", 1, 1)]
    for seed in (1, 2):
        models.append(("control", "control", seed, seed))
        models.append(("pruned", "50%", seed, 2 + 3 * seed))
        models.append(("before-finetune", "50%", seed, 10 + seed))
    for kind, row, seed, wrong in models:
        run("headprune", f"plan {SHAPE} --percent 50 --seed {seed} -o translation/half{seed}.json")
        generation = run.path("translation/generation.txt")
        generation.write_text(
            "".join(
                f"D-{n}\t-0.5\t{line.replace('town', 'city') if n < wrong else line}\n"
                for n, line in enumerate(lines)
            )
        )
        facts = run.path("translation/facts.json")
        facts.write_text(json.dumps({"parameters": 3000 + wrong, "resumed": seed == 2}))
        unpruned = kind in ("baseline", "control")
        options = [
            f"score {generation.relative_to(run.folder)} --reference translation/raw/test.de",
            f"--plan translation/{'full' if unpruned else f'half{seed}'}.json --kind {kind}",
            f"--row {row} --seed {seed} --data made.en-de --study old",
            f"--select {'none --form none' if unpruned else 'random'}",
            "" if kind in ("baseline", "before-finetune") else "--finetune 30ep",
            "" if unpruned else "--requested-percent 50",
            "" if kind == "before-finetune" else "--training translation/facts.json",
            f"-o translation/{kind}{seed}.json",
        ]
        run("headprune", " ".join(options))
    for name in ("generation.txt", "facts.json", "full.json", "half1.json", "half2.json"):
        run.path(f"translation/{name}").unlink()
    files = " ".join(f"translation/{kind}{seed}.json" for kind, _, seed, _ in models)
    run("headprune", f"report {files} --output-dir translation/table --paper table1:en-de")


def hugging_face_folders(run: Runner) -> None:
    """Pruned folders: heads removed and uniform heads of a BERT, heads removed of a BART."""
    bert = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=8,
        max_position_embeddings=16,
        pad_token_id=0,
    )
    bart = BartConfig(
        vocab_size=20,
        d_model=8,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(1)
    for name, config, auto in (
        ("bert", bert, AutoModelForSequenceClassification),
        ("bart", bart, AutoModel),
    ):
        model = auto.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)  # so large that every head matters
        model.save_pretrained(run.path(f"whole-{name}"))
    kept = HeadPlan(kept={"ES": [(0, 2, 3), (1,)]}, heads={"ES": (4, 4)})
    kept.save(run.path("hugging_face/plan.json"))
    for form in ("remove", "uniform"):
        run(
            "headprune",
            f"prune whole-bert --plan hugging_face/plan.json --form {form} "
            f"-o hugging_face/bert-{form}",
        )
    run("headprune", "prune whole-bart --plan plans/uneven.json -o hugging_face/bart-remove")
    # The code beside a model is the same for all: one folder keeps it.
    for name in ("bert-uniform", "bart-remove"):
        for path in run.path(f"hugging_face/{name}").glob("*.py"):
            path.unlink()


def glue_results(run: Runner) -> None:
    """Runs on made-up files in the format of SST-2, with their table and a latency file."""
    numbers = random.Random(1)
    for split, size in (("train", 80), ("dev", 20)):
        sentences = [" ".join(numbers.choices(WORDS, k=5)) for _ in range(size)]
        lines = [f"{sentence}\t{int('red' in sentence)}\n" for sentence in sentences]
        run.path(f"glue/data/SST-2/{split}.tsv").write_text("".join(["sentence\tlabel\n", *lines]))
    write_model(
        run.path("pretrained"),
        words=WORDS,
        hidden_size=8,
        num_hidden_layers=2,
        intermediate_size=8,
    )
    HeadPlan(kept={"ES": [(0, 2), (1, 3)]}, heads={"ES": (4, 4)}).save(run.path("glue/plan.json"))
    common = (
        "glue --task sst2 --data-dir glue/data --model pretrained --epochs 6 --batch-size 8 "
        "--learning-rate 3e-2 --max-length 24 --study old"
    )
    run("headprune", f"{common} -o glue/control")
    for form in ("remove", "uniform"):
        run(
            "headprune",
            f"{common} --plan glue/plan.json --form {form} --row 50% --select random "
            f"--requested-percent 50 -o glue/{form}",
        )
        shutil.rmtree(run.path(f"glue/{form}/model"))
    run(
        "headprune",
        "latency glue/control/model --batch 2 --length 6 --threads 1 --rounds 3 "
        "-o latency/latency.json",
    )
    files = " ".join(f"glue/{name}/result.json" for name in ("control", "remove", "uniform"))
    run("headprune", f"report {files} --output-dir glue/table")


def comparisons(run: Runner) -> None:
    """A comparison on a checkpoint and one on a classifier, and a run of iterative pruning."""
    finetune = f"{PLUGIN.partition('fairseq_plugin ')[2]} {SIZES} {TRAIN} --max-epoch 1"
    finetune = finetune.replace("--cpu ", "").replace("--seed 1 --no-epoch-checkpoints ", "")
    run(
        "headprune",
        "compare fairseq/stock.pt --data data/bin --score magnitude --percent 50 --seeds 2 "
        f"--rounds 2 --beam 2 --finetune '{finetune}' -o compare",
    )
    run(
        "headprune",
        "compare glue/control/model --task sst2 --data-dir glue/data --score magnitude "
        "--percent 50 --seeds 2 --rounds 2 --max-length 24 --learning-rate 1e-2 --batch-size 8 "
        "-o compare-classifier",
    )
    run(
        "headprune",
        "iterate fairseq/stock.pt --data data/bin --score magnitude --percent 50 --steps 2 "
        "--beam 2 -o iterate",
    )
    # As after an interruption in step 2.
    for name in ("plan.json", "steps.json"):
        run.path(f"iterate/{name}").unlink()
    shutil.rmtree(run.path("iterate/step2"))


def tidy(folder: Path) -> None:
    """Remove what nothing reads again, and compress large files."""
    for name in ("whole-bert", "whole-bart", "pretrained", "train-stock", "train-layers"):
        shutil.rmtree(folder / name)
    for name in ("tok", ".steps", "bin/preprocess.log"):
        path = folder / "data" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for part in ("train", "valid"):
        for path in (folder / "data").glob(f"raw/{part}.*"):
            path.unlink()
    for path in (folder / "data" / "bpe").iterdir():
        if path.name != "codes":
            path.unlink()
    for pattern in ("*.png", "*.svg", ".lock", ".headprune.lock", "*.log"):
        for path in folder.rglob(pattern):
            path.unlink()
    for path in (*folder.rglob("*.pt"), folder / "ctranslate2" / "model.bin"):
        with gzip.GzipFile(f"{path}.gz", "wb", mtime=0) as file:
            file.write(path.read_bytes())
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

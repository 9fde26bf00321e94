"""fairseq's own command lines with the plugin, and `headprune` on their checkpoints."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fairseq_plugin.checkpoints import Checkpoint
from headprune import HeadPlan, select
from tests import warm_process
from tests.fairseq_plugin.conftest import (
    PLUGIN,
    ROOT,
    TRAIN,
    assert_same,
    generate,
    hypotheses,
    run,
    train,
)

SHAPE = dict.fromkeys(("ES", "ED", "DS"), (4, 4))
PLAN = HeadPlan(kept={"ES": [(1, 3), ()], "ED": [(2,), ()], "DS": [(), (0, 1, 2)]}, heads=SHAPE)


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    PLAN.save(file)
    return file


def losses(log: str, key: str = "train_loss") -> list[float]:
    found = re.findall(r"\| (\{\"epoch\".*\})$", log, flags=re.M)
    return [float(entry[key]) for entry in map(json.loads, found) if key in entry]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(path).state["model"]


def assert_same_weights(first: Path, second: Path) -> None:
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_train_prune_finetune_generate(corpus: Path, full: Path, plan: Path, tmp_path: Path):
    """The main job, on the real command lines."""
    before = generate(corpus, "--path", full)
    log = train(
        *(corpus, tmp_path, "--arch=transformer_headpruned_tiny"),
        *("--head-plan", plan, "--finetune-from-model", full),
    )
    assert "heads kept: ES=20 ED=10 DS=03" in log
    tuned = tmp_path / "checkpoint_best.pt"
    plan_copy = plan.read_text()
    plan.unlink()  # the plan is in the checkpoint, not its file's path
    try:
        after = generate(corpus, "--path", tuned)
    finally:
        plan.write_text(plan_copy)
    assert hypotheses(after) != hypotheses(before)
    assert Checkpoint.load(tuned).plan == PLAN
    assert Checkpoint.load(tuned).parameters < Checkpoint.load(full).parameters


@pytest.mark.slow
def test_three_ways_from_a_checkpoint_translate_alike(
    corpus: Path, stock: Path, plan: Path, tmp_path: Path
):
    """`headprune prune`, fine-tuning that has not begun, overrides at generation."""
    for form in ("remove", "mask"):
        pruned = tmp_path / f"{form}.pt"
        run(*("headprune", "prune", stock, "--plan", plan, "--form", form, "-o", pruned))
    reference = generate(corpus, "--path", tmp_path / "remove.pt")
    assert_same(generate(corpus, "--path", tmp_path / "mask.pt"), reference)

    # At learning rate 0 fine-tuning changes nothing, so its checkpoint is the pruned model.
    save = tmp_path / "finetuned"
    train(
        *(corpus, save, "--arch=transformer_headpruned_tiny", "--head-plan", plan),
        *("--finetune-from-model", stock, "--lr=0"),
    )
    assert_same_weights(save / "checkpoint_last.pt", tmp_path / "remove.pt")
    assert_same(generate(corpus, "--path", save / "checkpoint_last.pt"), reference)

    overrides = {"_name": "transformer_headpruned", "head_plan": str(plan)}
    assert_same(generate(corpus, "--path", stock, "--model-overrides", str(overrides)), reference)

    # and back: full size with zeros, for fairseq without the plugin
    exported = tmp_path / "exported.pt"
    run("headprune", "export", tmp_path / "remove.pt", "--to", "fairseq", "-o", exported)
    assert_same(generate(corpus, "--path", exported, plugin=False), reference)
    assert weights(exported).keys() == weights(stock).keys()
    assert Checkpoint.load(exported).plan.is_full


@pytest.mark.slow
def test_counts_at_generation(corpus: Path, full: Path, tmp_path: Path):
    """Overrides with counts choose the heads that `headprune plan` chooses."""
    overrides = {"es_heads": "21", "ds_heads": "12", "head_seed": 3}
    out = generate(corpus, "--path", full, "--model-overrides", str(overrides))
    plan = tmp_path / "plan.json"
    run(
        *("headprune", "plan", "--keep=ES=21", "--keep=DS=12", "--seed=3"),
        *("--model", full, "-o", plan),
    )
    run("headprune", "prune", full, "--plan", plan, "-o", tmp_path / "pruned.pt")
    assert_same(generate(corpus, "--path", tmp_path / "pruned.pt"), out)


@pytest.mark.slow
def test_stock_fairseq_and_the_full_plan_train_and_translate_alike(
    corpus: Path, stock: Path, full: Path
):
    ours, theirs = weights(full), weights(stock)
    for name, tensor in theirs.items():
        if not name.endswith("k_proj.bias"):  # has no gradient but rounding errors
            torch.testing.assert_close(ours[name], tensor, atol=1e-4, rtol=1e-4)
    overrides = str({"_name": "transformer_headpruned"})
    stock_in_plugin = generate(corpus, "--path", stock, "--model-overrides", overrides)
    assert_same(stock_in_plugin, generate(corpus, "--path", stock))


@pytest.mark.slow
def test_training_from_scratch_resumes(corpus: Path, tmp_path: Path):
    """One epoch and then another is two epochs; pruned weights are not pruned again."""
    options = ["--arch=transformer_headpruned_tiny", "--es-heads=21", "--ed-heads=10"]
    train(corpus, tmp_path / "whole", *options, epochs=2)
    train(corpus, tmp_path / "parts", *options, epochs=1)
    log = train(corpus, tmp_path / "parts", *options, epochs=2)
    assert "Loaded checkpoint" in log
    assert_same_weights(*(tmp_path / d / "checkpoint_last.pt" for d in ("whole", "parts")))
    checkpoint = Checkpoint.load(tmp_path / "parts" / "checkpoint_last.pt")
    assert str(checkpoint.plan) == "ES=21 ED=10 DS=44"
    assert checkpoint.state["optimizer_history"][-1]["num_updates"] > 6


@pytest.mark.slow
def test_finetuning_a_pruned_model_again_with_fewer_heads(
    corpus: Path, full: Path, plan: Path, tmp_path: Path
):
    fewer = HeadPlan(kept={**PLAN.kept, "ES": [(3,), ()]}, heads=SHAPE)
    fewer.save(tmp_path / "fewer.json")
    run("headprune", "prune", full, "--plan", plan, "-o", tmp_path / "once.pt")
    train(
        *(corpus, tmp_path / "twice", "--arch=transformer_headpruned_tiny", "--lr=0"),
        *("--head-plan", tmp_path / "fewer.json", "--finetune-from-model", tmp_path / "once.pt"),
    )
    run("headprune", "prune", full, "--plan", tmp_path / "fewer.json", "-o", tmp_path / "at.pt")
    assert_same_weights(tmp_path / "twice" / "checkpoint_last.pt", tmp_path / "at.pt")


@pytest.mark.slow
def test_hydra_keeps_the_heads(corpus: Path, tmp_path: Path):
    (tmp_path / "toy.yaml").write_text(
        f"""
common: {{user_dir: {PLUGIN}, cpu: true, seed: 1}}
checkpoint: {{save_dir: {tmp_path / "save"}, no_epoch_checkpoints: true}}
task: {{_name: translation, data: {corpus}, source_lang: en, target_lang: de}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam, lr: [0.003], adam_betas: "(0.9, 0.999)"}}
lr_scheduler: {{_name: fixed}}
dataset: {{max_tokens: 400, num_workers: 0}}
optimization: {{max_epoch: 1, lr: [0.003]}}
model:
  _name: transformer_headpruned_tiny
  share_all_embeddings: true
  dropout: 0.0
  es_heads: "21"
  ed_heads: "10"
  head_seed: 5
"""
    )
    run(
        *("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "toy"),
        f"hydra.run.dir={tmp_path / 'hydra'}",
    )
    checkpoint = tmp_path / "save" / "checkpoint_last.pt"
    expected = select.at_random(SHAPE, keep={"ES": "21", "ED": "10"}, seed=5)
    assert Checkpoint.load(checkpoint).plan == expected
    hypotheses(generate(corpus, "--path", checkpoint))
    run("headprune", "export", checkpoint, "--to=fairseq", "-o", tmp_path / "stock.pt")
    assert_same(
        generate(corpus, "--path", tmp_path / "stock.pt", plugin=False),
        generate(corpus, "--path", checkpoint),
    )


def test_hydra_misses_the_checkpoint_to_begin_with_at_once(tmp_path: Path):
    config = f"common: {{user_dir: {PLUGIN}}}\ndataset: {{max_tokens: 400}}\n"
    (tmp_path / "toy.yaml").write_text(config)
    output = run(
        *("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "toy"),
        *(f"hydra.run.dir={tmp_path / 'hydra'}", f"checkpoint.save_dir={tmp_path / 'save'}"),
        f"checkpoint.finetune_from_model={tmp_path / 'gone.pt'}",
        status=1,
    )
    assert f"DataError: --finetune-from-model: {tmp_path / 'gone.pt'}: no such file" in output
    assert not (tmp_path / "save").exists()


@pytest.mark.slow
def test_averaging_ensembles_and_interactive(corpus: Path, full: Path, plan: Path, tmp_path: Path):
    train(
        *(corpus, tmp_path, "--arch=transformer_headpruned_tiny", "--head-plan", plan),
        *("--finetune-from-model", full, "--keep-last-epochs=2"),
        epochs=2,
    )
    first, last = tmp_path / "checkpoint_best.pt", tmp_path / "checkpoint_last.pt"
    # As fairseq's scripts/average_checkpoints.py does, which its package does not hold: a sum,
    # divided, rounding down where numbers are whole.
    state = Checkpoint.load(first)
    other = Checkpoint.load(last).state["model"]
    for name, tensor in state.state["model"].items():
        total = tensor + other[name]
        state.state["model"][name] = total / 2 if total.is_floating_point() else total // 2
    state.save(tmp_path / "average.pt")
    generate(corpus, "--path", tmp_path / "average.pt")

    both = generate(corpus, "--path", f"{full}:{last}")
    run("headprune", "prune", full, "--plan", plan, "--form=mask", "-o", tmp_path / "mask.pt")
    assert hypotheses(both)

    out = run(
        *("fairseq-interactive", corpus, "--user-dir", PLUGIN, "--path", last, "--cpu"),
        *("--beam=3", "--source-lang=en", "--target-lang=de"),
        text="w1 w2 w3\nw4\n",
    )
    assert len(re.findall(r"^H-\d", out, flags=re.M)) == 2


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 2])
def test_two_processes_are_one_with_twice_the_update_freq(
    machines: int, corpus: Path, tmp_path: Path
):
    """The same loss at every update, also where layers keep no head.

    Two machines are two torchrun on this one, which find each other by the address.
    """
    options = [
        *("--arch=transformer_headpruned_tiny", "--ed-heads=01", "--ds-heads=20", "--es-heads=02"),
        *("--clip-norm=1.0", "--max-update=4"),
    ]
    alone = train(corpus, tmp_path / "one", *options, "--update-freq=2")
    port = free_port()

    def train_on_a_machine(_: int) -> str:
        return run(
            *("torchrun", f"--nnodes={machines}", f"--nproc-per-node={2 // machines}"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"),
            *("--no-python", "fairseq-train", corpus, "--user-dir", PLUGIN),
            "--distributed-world-size=2",  # fairseq counts GPUs otherwise
            *("--save-dir", tmp_path / "two", "--max-epoch=1", *TRAIN, *options),
            *("--update-freq=1", "--distributed-backend=gloo", "--ddp-backend=legacy_ddp"),
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        )

    with ThreadPoolExecutor() as pool:
        logs = list(pool.map(train_on_a_machine, range(machines)))
    one = losses(alone, "loss")
    (two,) = filter(None, [losses(log, "loss") for log in logs])  # only the first process logs
    assert len(one) >= 3  # fairseq does not log the last one of an epoch by itself
    assert two == pytest.approx(one, abs=2e-3)
    ours, theirs = (weights(tmp_path / n / "checkpoint_last.pt") for n in ("one", "two"))
    for name, tensor in ours.items():
        if not name.endswith("k_proj.bias"):  # has no gradient but rounding errors
            torch.testing.assert_close(tensor, theirs[name], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_two_processes_begin_with_a_checkpoint(corpus: Path, tmp_path: Path):
    """Fine-tuning, and resuming with the weights of a training that was not interrupted."""

    def train_two(folder: Path, *options: object) -> str:
        """What torchrun starts, in forks that need not import fairseq again."""
        command = (
            *("fairseq-train", corpus, "--user-dir", PLUGIN, "--save-dir", folder),
            *("--distributed-world-size=2", "--distributed-backend=gloo"),
            *(*TRAIN, "--arch=transformer_headpruned_tiny", "--max-epoch=2", *options),
            "--ddp-backend=legacy_ddp",
        )
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}

        def train_one(rank: int) -> tuple[int, str]:
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            return warm_process.run(
                tuple(map(str, command)),
                text=None,
                folder=ROOT,
                environment={**os.environ, "OMP_NUM_THREADS": "1", **address, **ranks},
                timeout=600,
            )

        with ThreadPoolExecutor() as pool:
            ended = list(pool.map(train_one, range(2)))
        logs = "\n".join(log for _, log in ended)
        assert [status for status, _ in ended] == [0, 0], logs[-3000:]
        return logs

    train_two(tmp_path / "whole", "--max-update=4")
    train_two(tmp_path / "parts", "--max-update=2")
    train_two(tmp_path / "parts", "--max-update=4")
    last = "checkpoint_last.pt"
    whole, parts = (weights(tmp_path / name / last) for name in ("whole", "parts"))
    assert all(weight.equal(parts[name]) for name, weight in whole.items())
    start = ("--finetune-from-model", tmp_path / "whole" / last)
    log = train_two(tmp_path / "tuned", *start, "--max-update=2")
    assert losses(log, "train_loss") and (tmp_path / "tuned" / last).exists()


@pytest.mark.slow
def test_half_precision_on_a_cpu(corpus: Path, plan: Path, tmp_path: Path):
    """The one of fairseq's flags for it that needs no GPU."""
    log = train(
        *(corpus, tmp_path, "--arch=transformer_headpruned_tiny", "--head-plan", plan),
        "--memory-efficient-fp16",
    )
    assert losses(log, "train_loss_scale")  # there is none in full precision
    assert losses(log) and all(map(math.isfinite, losses(log)))
    generate(corpus, "--path", tmp_path / "checkpoint_last.pt")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--fp16", "--bf16"])
def test_half_precision(flag: str, corpus: Path, plan: Path, tmp_path: Path):
    if not torch.cuda.is_available():
        pytest.skip("fairseq's half precision needs a GPU")
    options = [option for option in TRAIN if option != "--cpu"]
    run(
        *("fairseq-train", corpus, "--user-dir", PLUGIN, "--save-dir", tmp_path, flag),
        *("--arch=transformer_headpruned_tiny", "--head-plan", plan, "--max-epoch=1", *options),
    )


def test_show_a_checkpoint(full: Path, plan: Path, tmp_path: Path):
    run("headprune", "prune", full, "--plan", plan, "-o", tmp_path / "pruned.pt")
    out = run("headprune", "show", tmp_path / "pruned.pt", COLUMNS="120")
    assert "ES=20 ED=10 DS=03" in out
    assert "6 of 24 kept, 75.0% pruned" in out
    before = Checkpoint.load(full).parameters
    after = Checkpoint.load(tmp_path / "pruned.pt").parameters
    # 18 heads of 8: rows of q, k, v with biases, columns of the output matrix
    assert before - after == 18 * (4 * 8 * 32 + 3 * 8)
    assert f"{before:,} -> {after:,}" in out


MISTAKES = {
    "layers": (["--es-heads=444"], 2, "ES: head counts for 3 layers, the model has 2"),
    "heads": (["--ds-heads=49"], 2, "DS: layer 1 asks for 9 heads, the model has 4"),
    "plan": (["--head-plan={base}"], 2, "ES: the plan is for 6 layers, the model has 2"),
    "json": (["--head-plan={broken}"], 1, "not JSON"),
    "newer": (["--head-plan={newer}"], 1, "plan of version 3, this headprune reads up to 2"),
    "architecture": (
        ["--finetune-from-model={full}", "--encoder-layers=3"],
        2,
        "--encoder-layers 2 in the checkpoint, 3 here",
    ),
    "truncated": (["--finetune-from-model={truncated}"], 1, "truncated.pt: corrupt or truncated"),
    "layers to keep": (["--encoder-layers-to-keep=2"], 2, "no layer 2, the encoder has 2"),
}


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=() if name == "heads" else pytest.mark.slow) for name in MISTAKES],
)
def test_mistakes_get_one_line(mistake: str, corpus: Path, full: Path, tmp_path: Path):
    options, status, message = MISTAKES[mistake]
    base = HeadPlan.full(dict.fromkeys(SHAPE, (8,) * 6))
    base.save(tmp_path / "base")
    (tmp_path / "broken").write_text('{"format": ')
    (tmp_path / "newer").write_text(base.to_json().replace('"version": 1', '"version": 3'))
    (tmp_path / "truncated.pt").write_bytes(full.read_bytes()[:5000])
    files = {name: tmp_path / name for name in ("base", "broken", "newer")}
    files["truncated"] = tmp_path / "truncated.pt"
    options = [option.format(full=full, **files) for option in options]
    arch = "--arch=transformer_headpruned_tiny"
    out = run(
        *("fairseq-train", corpus, "--user-dir", PLUGIN, "--save-dir", tmp_path / "a" / "save"),
        *(*TRAIN, arch, "--max-epoch=1", *options),
        status=status,
    )
    last = out.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert "Traceback" not in out
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_generation_with_a_dictionary_that_does_not_fit(corpus: Path, full: Path, tmp_path: Path):
    for file in corpus.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for language in ("en", "de"):
        words = (tmp_path / f"dict.{language}.txt").read_text().splitlines()
        (tmp_path / f"dict.{language}.txt").write_text("\n".join(words[:-8]) + "\n")
    out = generate(tmp_path, "--path", full, status=1)
    assert "dictionary" in out.strip().splitlines()[-1]
    assert "Traceback" not in out


def checkpoint_mistakes(full: Path, folder: Path) -> dict[str, tuple[Path, str]]:
    data = full.read_bytes()
    (folder / "truncated.pt").write_bytes(data[: len(data) // 2])
    (folder / "text.pt").write_text("no checkpoint\n")
    torch.save({"a": 1}, folder / "other.pt")
    state = Checkpoint.load(full).state
    state["cfg"]["model"].arch = "roberta_base"
    del state["cfg"]["model"].decoder_layers
    torch.save(state, folder / "roberta.pt")
    return {
        "truncated.pt": (folder / "truncated.pt", "corrupt or truncated"),
        "text.pt": (folder / "text.pt", "not a checkpoint"),
        "other.pt": (folder / "other.pt", "not a checkpoint of fairseq"),
        "roberta.pt": (folder / "roberta.pt", "a checkpoint of roberta_base, not of an encoder-"),
        "missing.pt": (folder / "missing.pt", "no such file"),
        "folder": (folder, "not the folder of a model"),
    }


def test_checkpoints_that_cannot_be_pruned(full: Path, plan: Path, tmp_path: Path, capsys):
    from headprune.cli import app
    from headprune.errors import DataError

    for path, message in checkpoint_mistakes(full, tmp_path).values():
        with pytest.raises(DataError) as caught:
            app(
                ["prune", str(path), "--plan", str(plan), "-o", str(tmp_path / "out.pt")],
                standalone_mode=False,
            )
        assert message in str(caught.value) and "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
        assert not (tmp_path / "out.pt").exists()
    assert [f.name for f in tmp_path.iterdir() if f.name.endswith(".tmp")] == []


class _RunsCode:
    def __reduce__(self):
        return print, ("code in a checkpoint was run",)


def test_checkpoint_with_code_is_refused(full: Path, tmp_path: Path, capsys):
    from headprune.errors import DataError

    state = Checkpoint.load(full).state
    state["model"]["x"] = _RunsCode()
    torch.save(state, tmp_path / "evil.pt")
    with pytest.raises(DataError, match="refused: it holds objects other than weights"):
        Checkpoint.load(tmp_path / "evil.pt")
    assert "was run" not in capsys.readouterr().out


def test_the_mistakes_end_the_command_with_status_1(tmp_path: Path):
    (tmp_path / "text.pt").write_text("no checkpoint\n")
    HeadPlan.full(SHAPE).save(tmp_path / "plan")
    out = run(
        *("headprune", "prune", tmp_path / "text.pt", "--plan", tmp_path / "plan"),
        *("-o", tmp_path / "out.pt"),
        status=1,
    )
    assert re.search(r"^error: .*text.pt: not a checkpoint file$", out, flags=re.M)

"""`headprune new-study`: a study that is valid as it is written."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headprune.cli.new_study import app
from headprune.errors import HeadpruneError
from headprune.new_labelled_study import command_to_run
from headprune.new_study import Corpus, TrainedBaseline, study_text
from studies.glue_study import load_glue_study
from studies.study import load_study


def prepared(folder: Path, **changes: object) -> Path:
    """Write what the command reads of a preparation."""
    facts = {
        "corpus": "bitext",
        "source_lang": "en",
        "target_lang": "ru",
        "counts": {"train": 20000},
        "joined_dictionary": False,
    }
    (folder / "bin").mkdir(parents=True)
    (folder / "prep.json").write_text(json.dumps({**facts, **changes}))
    log = (
        "[en] bpe/train.en: 20000 sents, 9 tokens\n[ru] bpe/train.ru: 20000 sents, 409600 tokens\n"
    )
    (folder / "bin" / "preprocess.log").write_text(log)
    return folder


def new_study(*arguments: str | Path) -> object:
    return CliRunner().invoke(app, list(map(str, arguments))).exception


def test_the_study_runs_as_it_is_and_explains_each_line(tmp_path: Path) -> None:
    data = prepared(tmp_path / "my news")
    assert new_study(data, "-o", tmp_path / "mine.yaml") is None
    study = load_study(tmp_path / "mine.yaml")
    assert (study.name, study.data.name, study.data.pair) == ("mine", "my news.en-ru", ("en", "ru"))
    assert study.data.args == ("--from-dir", str(data))
    assert study.train.length == "15ep" and study.finetune.length == "1ep"
    assert "--share-all-embeddings" not in study.model_flags
    assert Path(study.data.script).is_file()
    again = new_study(data, "-o", tmp_path / "mine.yaml")
    assert isinstance(again, HeadpruneError) and "exists already" in str(again)


def test_the_command_can_be_pasted_where_the_study_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a study is taken from the folder of the command, its Snakefile from headprune."""
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    study = tmp_path / "my study.yaml"
    assert command_to_run(study, cores=2).startswith("snakemake -s studies/Snakefile ")
    monkeypatch.chdir(tmp_path)
    change, command = command_to_run(Path("my study.yaml"), cores=2).split(" && ")
    assert shlex.split(change) == ["cd", str(root)]
    assert f"study={study}" in shlex.split(command)


@pytest.mark.parametrize("pairs", [1000, 500_000, 5_000_000])
def test_the_model_grows_with_the_data_where_there_is_a_gpu(pairs: int, tmp_path: Path) -> None:
    corpus = Corpus(
        folder=tmp_path,
        name="news.en-de",
        pair="en-de",
        pairs=pairs,
        tokens=30 * pairs,
        joined_dictionary=True,
    )
    arch = {1000: "_small", 500_000: "_iwslt", 5_000_000: ""}[pairs]
    path = tmp_path / "big.yaml"
    path.write_text(study_text(corpus, path=path, cores=8, gpu=True))
    study = load_study(path)
    assert study.arch == f"transformer_headpruned{arch}" and study.precision == "fp16"
    assert study.resources["baseline"].gpu == 1
    on_cores = study_text(corpus, path=path, cores=2, gpu=False)
    assert "arch: transformer_headpruned_small" in on_cores


def test_a_model_that_is_trained_already_is_described(tmp_path: Path) -> None:
    pytest.importorskip("fairseq", reason="the model is fairseq's")
    from tests.fairseq_plugin import checkpoints
    from tests.fairseq_plugin.models import SIZES, WORDS, dictionary

    data, model = prepared(tmp_path / "data"), checkpoints.write(tmp_path / "it's mine.pt")
    (data / "bin" / "train.en-ru.en.idx").touch()  # names the languages
    for language in ("en", "ru"):
        dictionary().save(str(data / "bin" / f"dict.{language}.txt"))
    assert new_study(data, "-o", tmp_path / "mine.yaml", "--baseline-model", model) is None
    study = load_study(tmp_path / "mine.yaml")
    assert (study.baseline_model, study.train) == (model, None)
    # The sizes, whatever architecture is named.
    assert study.arch == "transformer_headpruned_tiny"
    ends = ("encoder-ffn-embed-dim", str(SIZES["encoder_ffn_embed_dim"]))
    assert ends in itertools.pairwise(flag.removeprefix("--") for flag in study.model_flags)
    assert study.finetune.flags[study.finetune.flags.index("--lr") + 1] == "0.0001"
    error = new_study(data, "-o", tmp_path / "no.yaml", "--baseline-model", tmp_path / "no.pt")
    assert isinstance(error, HeadpruneError) and "no.pt" in str(error)
    pruned = checkpoints.write(tmp_path / "pruned.pt", plan=checkpoints.PLAN)
    error = new_study(data, "-o", tmp_path / "no.yaml", "--baseline-model", pruned)
    assert isinstance(error, HeadpruneError) and "is pruned already" in str(error)
    dictionary(WORDS + 1).save(str(data / "bin" / "dict.ru.txt"))
    error = new_study(data, "-o", tmp_path / "no.yaml", "--baseline-model", model)
    assert isinstance(error, HeadpruneError) and "does not load with the dictionaries" in str(error)
    error = new_study("-o", tmp_path / "no.yaml", "--model", model, "--task", "sst2")
    assert isinstance(error, HeadpruneError) and "goes with a folder of data" in str(error)
    assert not (tmp_path / "no.yaml").exists()


def labelled(folder: Path) -> list[str | Path]:
    """Options that name two files with labels and a model."""
    transformers = pytest.importorskip("transformers", reason="the model is one of transformers")
    folder.mkdir()
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_attention_heads=4,
        num_hidden_layers=2,
        intermediate_size=12,
    )
    transformers.BertModel(config).save_pretrained(folder / "encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", *"abcdefghijk"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "encoder")
    for split, letters in (("train", "abcdefgh"), ("dev", "ijk")):
        rows = [f"{word} {letter},{word}" for letter in letters for word in ("good", "bad")]
        (folder / f"{split}.csv").write_text("\n".join(["review,mood", *rows]) + "\n")
    return [
        *("--model", folder / "encoder"),
        *("--train", folder / "train.csv"),
        *("--dev", folder / "dev.csv"),
        *("--text", "review", "--label", "mood"),
    ]


def test_a_study_of_ones_own_labels_runs_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    options = labelled(tmp_path / "my files")
    assert new_study("-o", path, *options) is None
    study = load_glue_study(path)
    files = [str(tmp_path / "my files" / f"{split}.csv") for split in ("train", "dev")]
    assert study.local_files("mood") == files
    assert study.shape == {"ES": (4, 4)} and len(study.runs()) == 4 * 3
    assert "16 training examples" in path.read_text()
    assert new_study("-o", path, "--overwrite", *options, "--name", "true") is None
    assert list(load_glue_study(path).tasks) == ["true"]
    (tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        rows = "sentence\tlabel\na good one\t1\na bad one\t0\n"
        (tmp_path / "SST-2" / f"{split}.tsv").write_text(rows)
    glue = ("--model", tmp_path / "my files" / "encoder", "--task", "sst2", "--data-dir", tmp_path)
    assert new_study("-o", path, "--overwrite", *glue) is None
    assert "2 training examples" in path.read_text()
    study = load_glue_study(path)
    assert study.command("sst2")[:3] == ("glue", "--task", "sst2")
    assert study.data_dir == str(tmp_path)


@pytest.mark.slow
def test_the_study_of_ones_own_labels_makes_its_table(tmp_path: Path) -> None:
    pytest.importorskip("snakemake", reason="studies run with snakemake")
    path = tmp_path / "mine.yaml"
    assert new_study("-o", path, *labelled(tmp_path / "my files"), "--name", "moods") is None
    short = path.read_text().replace("[1, 2, 3]", "[1]").replace("  - {percent: 75}\n", "")
    path.write_text(short.replace("epochs: 3", "epochs: 1"))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "snakemake", "-s", str(root / "studies" / "Snakefile")]
    # A folder of GLUE's files does not concern the task.
    config = ["--config", f"study={path}", f"out={tmp_path / 'out'}", f"data_dir={tmp_path}"]
    done = subprocess.run(
        [*command, "--cores", "2", *config], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert list(table["tasks"]) == ["moods"]
    assert [row["label"] for row in table["rows"]] == ["25%", "50%"]
    assert all(row["cells"]["moods"]["value"]["n"] == 1 for row in table["rows"])


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    output = ("-o", tmp_path / "mine.yaml")
    options = labelled(tmp_path / "files")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    for given, message in (
        ((), "give a folder that a script of data_prep wrote; or --model"),
        ((tmp_path, "--model", "x"), "give DATA or --model, not both"),
        ((tmp_path, "--train", "x"), "give DATA or --train, not both"),
        (("--train", "x"), "give --model too"),
        (("--model", "x", "--baseline-model", "y"), "--baseline-model goes with a folder of data"),
        ((*options[:4], *options[6:]), "give --dev too"),
        ((*options[:-1], "moods"), "no column 'moods'; its columns are 'review', 'mood'"),
        ((*options, "--name", "sst2"), "--name sst2: give a name of letters"),
        (("--model", "x", "--task", "sst2", "--name", "y"), "--name y: goes with --train"),
        (("--model", tmp_path / "broken", "--task", "sst2"), "broken: cannot read the model"),
        ((*options[:2], "--task", "sst2", "--data-dir", tmp_path), "no train.tsv"),
    ):
        error = new_study(*output, *given)
        assert isinstance(error, HeadpruneError) and message in str(error)
    assert not (tmp_path / "mine.yaml").exists()


def test_what_is_no_preparation_is_refused(tmp_path: Path) -> None:
    for data, output, message in (
        (tmp_path, "mine.yaml", "prep.json"),
        (prepared(tmp_path / "data", counts={}), "mine.yaml", "how many training pairs"),
        (tmp_path / "data", "mine.txt", "give a name such as mine.yaml"),
        (tmp_path / "data", "_mine.yaml", "letters, digits, '.', '_', '-' only"),
        (tmp_path / "data", "été.yaml", "letters, digits, '.', '_', '-' only"),
    ):
        error = new_study(data, "-o", tmp_path / output)
        assert isinstance(error, HeadpruneError) and message in str(error)


@pytest.mark.parametrize("name", ["2024", "true", "null", "12.5", "1_000", "0x1f", "my.study"])
def test_a_name_that_yaml_reads_as_another_value(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    assert new_study(prepared(tmp_path / "data"), "-o", path) is None
    assert load_study(path).name == name


def test_the_script_of_the_study_copies_a_finished_preparation(tmp_path: Path) -> None:
    def copy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        script = Path(__file__).parents[2] / "data_prep" / "prepared.sh"
        return subprocess.run(
            ["bash", script, *arguments], capture_output=True, text=True, check=False
        )

    data = prepared(tmp_path / "data")
    for part in ("raw", "bpe"):
        (data / part).mkdir()
        (data / part / "test.ru").write_text("text\n")
    out = tmp_path / "run" / "data"
    done = copy("--out", out, "--from-dir", data, "--workers", "2")
    assert (done.returncode, done.stderr) == (0, f"done: {out}\n")
    for name in ("prep.json", "bin/preprocess.log", "raw/test.ru", "bpe/test.ru"):
        assert (out / name).read_bytes() == (data / name).read_bytes()
    assert copy("--out", out, "--from-dir", data).stderr == f"skip: {out} (copied before)\n"
    refused = copy("--out", out, "--from-dir", tmp_path)
    assert refused.returncode == 1 and "no prep.json, no finished preparation" in refused.stderr
    assert copy("--out", out).returncode == 2


def test_the_criterion_of_an_adaptive_softmax(tmp_path: Path) -> None:
    corpus = Corpus(
        folder=tmp_path, name="news.en-de", pair="en-de", pairs=9, tokens=90, joined_dictionary=True
    )
    options = {"adaptive-softmax-cutoff": "40,90"}
    baseline = TrainedBaseline(
        file=tmp_path / "model.pt", arch="transformer_headpruned", options=options, lr=None
    )
    text = study_text(corpus, path=tmp_path / "mine.yaml", cores=2, gpu=False, baseline=baseline)
    assert "criterion: adaptive_loss" in text and "ddp-backend: legacy_ddp" in text
    assert "label" not in text

"""Scores of fairseq models against plain loops, and `headprune scores` on checkpoints."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq.data.language_pair_dataset import collate
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from typer.testing import CliRunner, Result

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.scores import bleu_ablation as bleu_ablation_module
from fairseq_plugin.scores.bleu_ablation import Translator, bleu_ablation
from fairseq_plugin.scores.model import FairseqModel
from fairseq_plugin.scores.run import batches_of, load_items, score_heads
from headprune import DataError, HeadPlan, UsageError
from headprune.backends import ScoreRequest
from headprune.cli import app
from headprune.components import HEADS, NEURONS
from headprune.gates import gated as gated_units
from headprune.plan import PruningPlan
from headprune.scores import HeadScores
from headprune.scores.ablation import ablation, cases_of
from headprune.scores.attention_statistics import attention_statistics
from headprune.scores.combination import ATTENTION_GUIDED
from headprune.scores.compute import unwatched
from headprune.scores.gradients import gradient_scores
from headprune.scores.magnitude import magnitude
from headprune.scores.names import STATISTICS, scores_by_default
from headprune.scores.own_outputs import without_labels
from headprune.scores.registry import registered
from headprune.scores.reuse import masked_outcomes
from headprune.scores.roles import rarity_of
from headprune.scores.units import parts_of
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.models import SHAPE, build, dictionary
from tests.fairseq_plugin.test_model import NO_HEADS_HERE_AND_THERE, plans
from tests.fairseq_plugin.test_neurons_and_layers import RAGGED, SIZES

FULL = HeadPlan.full(SHAPE)


def model(plan: HeadPlan = FULL, *, form: str = "remove", **options: Any) -> Any:
    """A model in which every head matters."""
    built = build(head_plan=plan.to_json(), head_form=form, **options).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return built


def samples(*sizes: int) -> list[dict[str, Any]]:
    """Seven sentence pairs of uneven length, cut into batches of these sizes."""
    words = dictionary()
    generator = torch.Generator().manual_seed(5)

    def sentence(length: int) -> torch.Tensor:
        body = torch.randint(words.nspecial, len(words), (length,), generator=generator)
        return torch.cat([body, torch.tensor([words.eos()])])

    lengths = ((4, 6), (1, 2), (7, 3), (3, 3), (5, 8), (2, 1), (6, 5))
    items = [
        {"id": number, "source": sentence(s), "target": sentence(t)}
        for number, (s, t) in enumerate(lengths)
    ]
    batches, start = [], 0
    for size in sizes:
        part = items[start : start + size]
        batches.append(collate(part, pad_idx=words.pad(), eos_idx=words.eos()))
        start += size
    return batches


def pruned_losses(full: Any, plan: HeadPlan, batch: Any, **options: Any) -> torch.Tensor:
    """Losses of the same weights with the heads of ``plan`` alone, masked by the model itself."""
    other = build(head_plan=plan.to_json(), head_form="mask", **options).eval()
    other.load_state_dict(full.state_dict(), strict=False)
    with torch.no_grad():
        return FairseqModel(other).outcome(batch).losses


def without(plan: HeadPlan, component: str, layer: int, kept: frozenset[int]) -> HeadPlan:
    layers = list(plan.kept[component])
    layers[layer] = tuple(sorted(kept))
    return HeadPlan(kept={**plan.kept, component: layers}, heads=plan.heads)


@pytest.mark.parametrize("style", [{}, {"decoder_normalize_before": True, "form": "mask"}])
def test_every_mask_gives_what_the_masked_model_gives(style):
    built = model(**style)
    options = {name: value for name, value in style.items() if name != "form"}
    scored, (batch,) = FairseqModel(built), samples(7)
    differing = 0
    for kind in ("ablation", "alone"):
        cases = cases_of(scored, kind)
        assert sum(map(len, cases.values())) == FULL.total_kept
        base, found = masked_outcomes(scored, batch, cases, at_once=21)
        torch.testing.assert_close(base.losses, pruned_losses(built, FULL, batch, **options))
        for (component, layer), masks in cases.items():
            for mask, outcome in zip(masks, found[component, layer], strict=True):
                plan = without(FULL, component, layer, mask)
                expected = pruned_losses(built, plan, batch, **options)
                torch.testing.assert_close(outcome.losses, expected, atol=1e-5, rtol=1e-5)
                differing += not torch.allclose(expected, base.losses, atol=1e-4)
    assert differing


@settings(max_examples=10, deadline=None)
@given(plan=plans)
def test_any_plan_can_be_scored_and_only_its_heads_have_numbers(plan):
    for form in ("remove", "mask"):
        scored = FairseqModel(model(plan, form=form))
        statistics = attention_statistics(scored, samples(7))
        found = [
            magnitude(parts_of(scored, HEADS)),
            *(statistics[kind] for kind in STATISTICS),
        ]
        if plan.total_kept:
            gradients = gradient_scores(scored, samples(7))
            found += [gradients.gradient, gradients.taylor, gradients.taylor_molchanov]
            found += [each.drops for each in ablation(scored, samples(7), metric="loss").values()]
        for values in found:
            assert HeadScores(name="any", values=values).scored == plan


def test_heads_are_scored_beside_pruned_neurons_and_layers():
    """By the numbers of the unpruned layers, and alike in both forms."""
    results = []
    for form in ("remove", "mask"):
        built = build(head_plan=RAGGED.to_json(), head_form=form, **SIZES).eval()
        built.load_state_dict(model(HeadPlan.full(RAGGED.units), **SIZES).state_dict())
        scored = FairseqModel(built)
        found = [gradient_scores(scored, samples(4, 3)).gradient]
        found += [each.drops for each in ablation(scored, samples(7), metric="loss").values()]
        found += [attention_statistics(scored, samples(7))[kind] for kind in STATISTICS]
        assert {HeadScores(name="any", values=values).scored for values in found} == {
            built.head_plan
        }
        results.append(found)
    for removed, masked in zip(*results, strict=True):
        for name, layers in removed.items():
            for row, other in zip(layers, masked[name], strict=True):
                assert row == pytest.approx(other, abs=1e-4)


def test_neurons_are_scored():
    """Ablation against a model that masks the neuron itself; the others alike in both forms."""
    results = []
    for form in ("remove", "mask"):
        built = build(head_plan=RAGGED.to_json(), head_form=form, **SIZES).eval()
        built.load_state_dict(model(HeadPlan.full(RAGGED.units), **SIZES).state_dict())
        scored = FairseqModel(built)
        found = [magnitude(parts_of(scored, NEURONS))]
        found += [gradient_scores(scored, samples(4, 3), components=NEURONS).gradient]
        cases = cases_of(scored, "ablation", NEURONS)
        base, outcomes = masked_outcomes(scored, samples(7)[0], cases, at_once=21)
        assert set(cases) == {("EF", 1), ("DF", 0)}  # the others are empty, or of dropped layers
        for (component, layer), masks in cases.items():
            for mask, outcome in zip(masks, outcomes[component, layer], strict=True):
                kept = [list(units) for units in RAGGED.kept[component]]
                kept[layer] = sorted(mask)
                without_one = HeadPlan(kept={**RAGGED.kept, component: kept}, units=RAGGED.units)
                expected = pruned_losses(
                    model(HeadPlan.full(RAGGED.units), **SIZES), without_one, samples(7)[0], **SIZES
                )
                torch.testing.assert_close(outcome.losses, expected, atol=1e-5, rtol=1e-5)
        assert {HeadScores(name="any", values=values).scored for values in found} == {
            built.plan.part(NEURONS)
        }
        results.append(found)
    for removed, masked in zip(*results, strict=True):
        for name, layers in removed.items():
            for row, other in zip(layers, masked[name], strict=True):
                assert row == pytest.approx(other, abs=1e-4)


def gated(_: Any, inputs: tuple[torch.Tensor], *, xi: torch.Tensor, size: int) -> torch.Tensor:
    return inputs[0] * xi.repeat_interleave(size)


def test_gradient_is_that_of_the_gates_example_by_example():
    built = model()
    scored = FairseqModel(built)
    expected = {name: torch.zeros(len(layers), layers[0]) for name, layers in SHAPE.items()}
    for batch in samples(*[1] * 7):
        gates = {
            name: torch.ones_like(table, requires_grad=True) for name, table in expected.items()
        }
        with ExitStack() as hooks:
            for name, layers in parts_of(scored, HEADS).items():
                for layer, attention in enumerate(layers):
                    gate = partial(gated, xi=gates[name][layer], size=attention.unit_size)
                    hooks.callback(attention.output.register_forward_pre_hook(gate).remove)
            scored.outcome(batch).losses.sum().backward()
        for name, gate in gates.items():
            expected[name] += gate.grad.abs() / 7
    found = gradient_scores(scored, samples(4, 3)).gradient_raw
    for name, numbers in expected.items():
        torch.testing.assert_close(torch.tensor(found[name]), numbers, atol=1e-5, rtol=1e-4)


def test_how_the_data_are_cut_does_not_matter():
    scored = FairseqModel(model(NO_HEADS_HERE_AND_THERE))
    one, two = (gradient_scores(scored, samples(*sizes)) for sizes in ((7,), (2, 2, 3)))
    a, b = (attention_statistics(scored, samples(*sizes)) for sizes in ((7,), (2, 2, 3)))
    c, d = (ablation(scored, samples(*sizes), metric="loss") for sizes in ((7,), (2, 2, 3)))
    pairs = [(one.gradient, two.gradient), (one.taylor, two.taylor)]
    pairs += [(one.taylor_molchanov, two.taylor_molchanov)]
    pairs += [(a[kind], b[kind]) for kind in a]
    pairs += [(c[kind].drops, d[kind].drops) for kind in c]
    for first, second in pairs:
        for name in first:
            for row, other in zip(first[name], second[name], strict=True):
                assert row == pytest.approx(other, abs=1e-5)


def test_statistics_are_those_of_the_weights_that_the_layers_report():
    built = model()
    scored, (batch,) = FairseqModel(built), samples(7)
    found = attention_statistics(scored, [batch])
    with torch.no_grad():
        _, extra = built(**batch["net_input"], alignment_layer=1)
    weights = extra["attn"][0]  # B x T x S, the mean over the heads of the last layer's ED
    real = batch["net_input"]["prev_output_tokens"].ne(1)
    ends = batch["net_input"]["src_tokens"].eq(2)  # </s> does not count for confidence
    mean = weights.masked_fill(ends[:, None], 0).amax(-1)[real].mean().item()
    assert sum(found["confidence"]["ED"][1]) / len(found["confidence"]["ED"][1]) >= mean
    for kind, low, high in (("confidence", 0, 1), ("sparsity", 0, 1), ("hoyer", 0, 1)):
        assert all(low <= v <= high for rows in found[kind].values() for row in rows for v in row)
    assert set(found["previous"]) == {"ES", "DS"} and set(found["next"]) == {"ES"}


def test_roles_of_heads_whose_attention_is_known():
    built = model()
    scored, (batch,) = FairseqModel(built), samples(7)
    source = batch["net_input"]["src_tokens"]
    length = source.size(1)
    rarity = rarity_of([scored.keys("ES", batch)], special=scored.special_tokens)
    rarest = rarity(scored.keys("ES", batch)).argmin(-1)
    assert not any(row[place] in (0, 1, 2) for row, place in zip(source, rarest, strict=True))
    want = {0: "previous", 1: "same", 2: "next", 3: "rare"}

    def attend(batch: Any, see: Any) -> None:
        weights = torch.zeros(len(source), 4, length, length)
        for t in range(length):
            weights[:, 0, t, max(t - 1, 0)] = weights[:, 1, t, t] = 1
            weights[:, 2, t, min(t + 1, length - 1)] = 1
            weights[torch.arange(len(source)), 3, t, rarest] = 1
        see("ES", 0, weights)

    scored.attend = attend  # type: ignore[method-assign]
    scored.sublayers = {"ES": scored.sublayers["ES"][:1]}
    found = attention_statistics(scored, [batch], rarity=rarity)
    for head, role in want.items():
        others = [found[role]["ES"][0][h] for h in range(4) if h != head]
        assert found[role]["ES"][0][head] > 0.7 and found[role]["ES"][0][head] > max(others)
    assert found["rare"]["ES"][0][3] == 1
    ends = source.eq(2).any(1).float().mean().item()  # each sentence has one </s>, at its end
    assert ends == 1 and 0 < found["separator"]["ES"][0][2] < 1


@pytest.mark.parametrize("form", ["remove", "mask"])
def test_attention_without_cross_attention_is_seen(form: str) -> None:
    shape = {name: SHAPE[name] for name in ("ES", "DS")}
    built = build(head_plan=HeadPlan.full(shape).to_json(), head_form=form, no_cross_attention=True)
    seen: dict[tuple[str, int], int] = {}

    def see(component: str, layer: int, weights: torch.Tensor) -> None:  # B x H x T x S
        seen[component, layer] = weights.size(1)

    with torch.no_grad():
        FairseqModel(built.eval()).attend(samples(7)[0], see)
    heads = {(name, n): units for name in shape for n, units in enumerate(shape[name])}
    assert seen == heads


def test_attention_that_reads_both_sentences_has_no_scores_of_weights(tmp_path: Path) -> None:
    state = checkpoints.content()
    state["args"].cross_self_attention = True
    torch.save(state, tmp_path / "model.pt")
    request = ScoreRequest(scores=["fisher", "entropy"], weights=ATTENTION_GUIDED, watch=unwatched)
    with pytest.raises(UsageError, match="for which entropy are not defined; give --score"):
        score_heads(tmp_path / "model.pt", request)


def translator(built: Any) -> Translator:
    words = dictionary()
    generator = SequenceGenerator([built], words, beam_size=2, max_len_a=0, max_len_b=8)
    return Translator(FairseqModel(built), generator=generator, dictionary=words, join=" ".join)


def test_bleu_ablation_is_that_of_the_masked_models_own_search():
    built = model()
    batches = samples(4, 3)
    for batch in batches:  # what the model says itself is the reference
        said = translator(built).generator.generate([built], batch)
        rows = [hypotheses[0]["tokens"] for hypotheses in said]
        batch["target"] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)
    found = bleu_ablation(translator(built), batches, kinds=["ablation"])["ablation"]
    from sacrebleu.metrics.bleu import BLEU

    references = [translator(built).text(row) for batch in batches for row in batch["target"]]
    assert found.base == pytest.approx(100)
    differing = 0
    for component, layer, head in (("ES", 0, 1), ("ED", 1, 0), ("DS", 1, 3), ("DS", 0, 2)):
        plan = without(FULL, component, layer, frozenset(range(4)) - {head})
        other = build(head_plan=plan.to_json(), head_form="mask").eval()
        other.load_state_dict(built.state_dict(), strict=False)
        texts = [text for batch in batches for text in translator(other).translate(batch)]
        score = BLEU().corpus_score(texts, [references]).score
        assert found.base - found.drops[component][layer][head] == pytest.approx(score, abs=1e-6)
        differing += found.drops[component][layer][head] != 0
    assert differing
    p_values = [p for rows in found.p_values.values() for row in rows for p in row]
    assert all(0 < p <= 1 for p in p_values)
    # Of some components alone, also of neurons and layers.
    some = {"ablation": ("DS", "EL", "DL"), "alone": ("EF",)}
    for kind, components in some.items():
        other = bleu_ablation(translator(built), batches, kinds=[kind], components=components)[kind]
        assert set(other.drops) == set(components)
        if kind == "ablation":
            assert other.drops["DS"] == found.drops["DS"]
            for component, layer in (("EL", 1), ("DL", 0)):
                plan = PruningPlan(
                    kept={component: [() if n == layer else (0,) for n in range(2)]},
                    units={component: (1, 1)},
                )
                dropped = build(head_plan=plan.to_json(), head_form="mask").eval()
                dropped.load_state_dict(built.state_dict(), strict=False)
                texts = [t for batch in batches for t in translator(dropped).translate(batch)]
                score = BLEU().corpus_score(texts, [references]).score
                assert other.base - other.drops[component][layer][0] == pytest.approx(score)
    # Enough trials that Holm's correction could call one of them significant.
    assert bleu_ablation_module.TRIALS_PER_TEST > 1 / 0.05


def test_masked_leaves_the_model_as_it_was():
    built = model()
    attention = FairseqModel(built).sublayers["DS"][0]
    with gated_units([(attention, torch.tensor([0.0, 1.0, 0.0, 0.0]))]):
        assert attention.output._forward_pre_hooks
    assert not attention.output._forward_pre_hooks


def headprune(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_all_scores_of_a_checkpoint_and_a_plan(full: Path, corpus: Path, tmp_path: Path):
    scores = {name: score for name, score in registered().items() if name != "movement"}
    of_heads = [name for name, score in scores.items() if "ES" in score.components]
    chosen = [f"--score={name}" for name in (*of_heads, "combination")]
    out = tmp_path / "scores"
    result = headprune("scores", full, *chosen, "-o", out)
    assert (
        "alone: one head is enough in " in result.stdout and " of 2 layers of ED" in result.stdout
    )
    assert "ablation: " in result.stdout and "after Holm's correction (loss " in result.stdout
    for name in (*of_heads, "combination"):
        made = HeadScores.load(out / f"{name}.json")
        assert made.fingerprint == Checkpoint.load(full).fingerprint
        assert (out / f"{name}.png").stat().st_size > 0
        if name not in ("magnitude", "random"):
            assert made.data.endswith("bin.valid[10]")
            part = "ablation" if name in ("ablation", "alone") else "scoring"
            assert made.settings.get("part", part) == part
    plan = tmp_path / "plan.json"
    best = ("--scores", out / "gradient.json", "--percent", 50)
    headprune("plan", *best, "--model", full, "-o", plan)
    assert HeadPlan.load(plan).percent_pruned == 50
    headprune("prune", full, "--plan", plan, "-o", tmp_path / "pruned.pt")
    with pytest.raises(DataError, match="scores of other weights than those of"):
        headprune("plan", *best, "--model", tmp_path / "pruned.pt", "-o", plan)
    pruned = ("scores", tmp_path / "pruned.pt", "--data", corpus, "--score=taylor")
    headprune(*pruned, "-o", tmp_path / "second")
    scored = HeadScores.load(tmp_path / "second" / "taylor.json").scored
    assert scored == HeadPlan.load(plan)


@pytest.mark.parametrize("pairs", [4, 5, 20])
def test_scores_and_the_ablation_that_judges_them_are_of_different_sentences(pairs: int):
    sentences = [{"id": number} for number in range(pairs)]
    found = {}
    with mock.patch("fairseq_plugin.scores.run.load_split", split_of(sentences)):
        for part in ("scoring", "ablation"):
            items = load_items(None, "valid", Path("data"), max_examples=None, part=part)
            found[part] = {item["id"] for item in items}
    assert not found["scoring"] & found["ablation"]
    assert found["scoring"] | found["ablation"] == set(range(pairs))


def split_of(sentences):
    """Stands for reading a split of the data."""
    return lambda task, split, data, *, choose: [sentences[n] for n in choose(len(sentences))]


def test_stock_checkpoints_and_the_test_set(stock: Path, tmp_path: Path):
    result = headprune("scores", stock, "--split=test", "--max-examples=5", "-o", tmp_path)
    assert "warning: scores computed on test" in result.stderr
    for name in scores_by_default():
        assert HeadScores.load(tmp_path / f"{name}.json").heads == SHAPE
    assert HeadScores.load(tmp_path / "entropy.json").data.endswith("test[5]")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task=sst2"], "is a fairseq checkpoint, for which there is no --task"),
        (["--split=dev"], "there is no split dev"),
        (["--metric=accuracy"], "metric accuracy: of translations it is one of loss, bleu"),
        (["--score=ablation", "--metric=bleu"], "no prep.json beside it"),
        (["--score=best"], "there is no score 'best'"),
        (["--combine=entropy"], "write score=weight"),
        (["--score=combination", "--combine=best=1"], "there is no score 'best'"),
        (["--score=combination", "--combine=entropy=0"], "weight other than 0"),
    ],
)
def test_mistakes_are_one_line(options, message, full, tmp_path):
    with pytest.raises((UsageError, DataError), match=message) as caught:
        headprune("scores", full, *options, "-o", tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_neurons_and_layers_are_scored_from_the_command_line(
    full: Path, corpus: Path, tmp_path: Path
):
    data = ("--data", corpus)
    headprune("scores", full, *data, "--components", "EF,DF", "-o", tmp_path / "neurons")
    saved = {path.stem for path in (tmp_path / "neurons").glob("*.json")}
    assert saved == {
        "gradient",
        "gradient-raw",
        "taylor",
        "taylor-molchanov",
        "magnitude",
        "random",
    }
    chosen = ("--scores", tmp_path / "neurons" / "taylor.json")
    headprune("plan", *chosen, "--percent", 50, "-o", tmp_path / "plan.json")
    plan = HeadPlan.load(tmp_path / "plan.json")
    assert list(plan.units) == ["EF", "DF"] and plan.percent_pruned == 50
    pruned = tmp_path / "pruned.pt"
    headprune("prune", full, "--plan", tmp_path / "plan.json", "-o", pruned)
    assert Checkpoint.load(pruned).plan.part(["EF", "DF"]) == plan

    options = ("--components", "EL,DL", "--score", "ablation", "--score", "layer-contribution")
    headprune("scores", full, *data, *options, "-o", tmp_path / "layers")
    scores = HeadScores.load(tmp_path / "layers" / "ablation.json")
    assert set(scores.values) == {"EL", "DL"} and scores.p_values
    contribution = HeadScores.load(tmp_path / "layers" / "layer-contribution.json")
    assert all(-1 <= row[0] <= 1 for layers in contribution.values.values() for row in layers)
    options = ("--without-labels", "--score", "fisher", "--components", "DF", "--max-examples", 5)
    headprune("scores", full, *data, *options, "-o", tmp_path / "own")
    own = HeadScores.load(tmp_path / "own" / "fisher.json")
    assert own.settings["labels"] == "own" and own.data.endswith("[5]")
    with pytest.raises(UsageError, match="--metric bleu: needs labels"):
        headprune("scores", full, *data, "--without-labels", "--metric", "bleu", "-o", tmp_path)
    with pytest.raises(UsageError, match="entropy scores ES, ED, DS, not EL"):
        headprune("scores", full, *data, "--components", "EL", "--score", "entropy", "-o", tmp_path)


def test_without_labels_the_losses_are_divergences_along_own_translations():
    scored = FairseqModel(model())
    batches = samples(4, 3)
    own = without_labels(scored, lambda _: batches, seed=1)
    found = ablation(scored, list(own("ablation")), metric="divergence")["ablation"]
    assert found.base == pytest.approx(0, abs=1e-6)
    attention = scored.sublayers["ED"][1]
    total = 0.0
    with torch.no_grad():
        for batch in batches:
            p = scored.model(**batch["net_input"])[0].log_softmax(-1)
            with gated_units([(attention, torch.tensor([1.0, 1.0, 0.0, 1.0]))]):
                q = scored.model(**batch["net_input"])[0].log_softmax(-1)
            real = batch["target"].ne(dictionary().pad())
            by_token = (p.exp() * (p - q)).sum(-1) * real
            total += float((by_token.sum(1) / real.sum(1)).sum()) / 7
    assert found.drops["ED"][1][2] == pytest.approx(total, rel=1e-3)
    gradients = gradient_scores(scored, own("gradients"))
    assert gradients.examples == 7 and max(gradients.fisher["ES"][0]) > 0


def test_drawn_labels_do_not_depend_on_the_batches():
    """fairseq sorts the sentences of each batch anew."""
    scored = FairseqModel(model())
    end = torch.tensor([dictionary().eos()])
    items = [
        {
            "id": number,
            "source": torch.cat([torch.full((2 + number % 3,), 5 + number), end]),
            "target": torch.cat([torch.full((3,), 6 + number), end]),
        }
        for number in range(6)
    ]

    def labels(size: int) -> dict[int, list[int]]:
        batches = batches_of(items, scored.model, size=size)
        own = without_labels(scored, lambda _: batches, seed=1)("gradients")
        return {
            number: row
            for batch in own
            for number, row in zip(batch["id"].tolist(), batch["target"].tolist(), strict=True)
        }

    assert labels(6) == labels(4) == labels(1)

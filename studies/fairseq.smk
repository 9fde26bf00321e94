"""A translation study: prepare the data, train the baseline, prune it, fine-tune, score, report."""

SCRIPT = ROOT / STUDY.data_script
if not SCRIPT.is_file():
    raise WorkflowError(f"{STUDY_FILE}: data.script: there is no {SCRIPT}")
if not os.access(SCRIPT, os.X_OK):
    raise WorkflowError(f"{STUDY_FILE}: data.script: {SCRIPT} is not executable")

DATA = f"{OUT}/data"
REFERENCE = f"{DATA}/raw/test.{STUDY.pair[1]}"
JOB = [PYTHON, f"{ROOT}/studies/fairseq_job.py"]
PLUGIN = f"{ROOT}/fairseq_plugin"
# No parameter of a rule: where the data are taken from is no reason to train again.
FROM_DIR = ["--from-dir", str(DATA_DIR)] if DATA_DIR else []

# A training depends on the study through its flags alone, so that editing a comment, the seeds or
# the plans repeats nothing that was done. Programs are no inputs either: a mended script does not
# throw a week of training away.
TRAINING = ["--arch", STUDY.arch, *STUDY.model_flags]
PRUNED = [f"{row.key}/seed{seed}" for row in STUDY.rows for seed in STUDY.seeds]
UNTUNED = [
    f"{row.key}/seed{seed}"
    for row in STUDY.rows
    for seed in STUDY.seeds
    if STUDY.before_finetune and row is not CONTROL
]
RESULTS = [
    f"{OUT}/baseline/result.json",
    *(f"{OUT}/finetuned/{model}/result.json" for model in PRUNED),
    *(f"{OUT}/before-finetune/{model}/result.json" for model in UNTUNED),
]

TARGETS = [f"{OUT}/table.md", f"{OUT}/figure.png"]


def facts(wildcards):
    """Kind, row, seed and length of the fine-tuning of the model in a folder of the run folder."""
    if wildcards.model == "baseline":
        return "baseline", CONTROL, STUDY.baseline_seed, "none"
    folder, key, seed = wildcards.model.split("/")
    row, seed = STUDY.row(key), int(seed.removeprefix("seed"))
    if folder == "before-finetune":
        return "before-finetune", row, seed, "none"
    return ("control" if row is CONTROL else "pruned"), row, seed, STUDY.finetune_length


def plan_of(wildcards):
    _, row, seed, _ = facts(wildcards)
    return f"{OUT}/plans/{row.key}/seed{seed}.json"


def training_of(wildcards):
    """The description of the training that the scored model is the outcome of."""
    return [] if wildcards.model.startswith("before") else f"{OUT}/{wildcards.model}/model.json"


def score_flags(wildcards):
    kind, row, seed, length = facts(wildcards)
    form = "none" if row is CONTROL else STUDY.form
    flags = {
        "study": STUDY.name,
        "kind": kind,
        "row": "baseline" if kind == "baseline" else row.label,
        "seed": seed,
        "select": row.select,
        "form": form,
        "finetune": length,
        "data": STUDY.data_name,
    }
    if row.requested_percent is not None:
        flags["requested-percent"] = f"{row.requested_percent:g}"
    return [f"--{name}={value}" for name, value in flags.items()]


rule prepare:
    output:
        f"{DATA}/prep.json",
    params:
        script=lambda wildcards: STUDY.data_script,
        flags=lambda wildcards: STUDY.data_args,
    log:
        f"{OUT}/logs/prepare.log",
    threads: threads_of("prepare")
    resources:
        **resource_of("prepare"),
    shell:
        # The preparation goes on where it was, too: only its last file is declared.
        'out=$(realpath -m {DATA:q}); log=$(realpath -m {log:q}); cd {ROOT:q}; '
        'if ! {SCRIPT:q} --out "$out" --workers {threads} {params.flags:q} {FROM_DIR:q} 2>&1 '
        # All words go to the log; that it waits for another preparation, to the terminal as well.
        '| tee -a "$log" | {{ grep --line-buffered "^note: " >&2 || cat >/dev/null; }}; then '
        'tail -n 20 "$log" >&2; exit 1; fi'


rule baseline:
    input:
        data=f"{DATA}/prep.json",
        # Nothing is pruned by it, but a shape that is not the architecture's is found at once.
        plan=f"{OUT}/plans/{CONTROL.key}/seed{STUDY.baseline_seed}.json",
    output:
        model=f"{OUT}/baseline/model.pt",
        facts=f"{OUT}/baseline/model.json",
    params:
        flags=lambda wildcards: [*TRAINING, *STUDY.train_flags, "--seed", STUDY.baseline_seed],
        precision=STUDY.precision,
    log:
        f"{OUT}/logs/baseline/train.log",
    threads: threads_of("baseline")
    resources:
        **resource_of("baseline"),
    shell:
        "{JOB:q} train --data {DATA:q} --keep-checkpoints "
        "--model {output.model:q} --depends {input.plan:q} --log {log:q} --label baseline --threads {threads} "
        "--precision {params.precision} -- --user-dir {PLUGIN:q} {params.flags:q} "
        "--head-plan {input.plan:q}"


rule finetune:
    input:
        data=f"{DATA}/prep.json",
        baseline=f"{OUT}/baseline/model.pt",
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        model=f"{OUT}/finetuned/{{row}}/seed{{seed}}/model.pt",
        facts=f"{OUT}/finetuned/{{row}}/seed{{seed}}/model.json",
    params:
        flags=lambda wildcards: [*TRAINING, "--head-form", STUDY.form, *STUDY.finetune_flags],
        precision=STUDY.precision,
    log:
        f"{OUT}/logs/finetuned/{{row}}/seed{{seed}}/train.log",
    threads: threads_of("finetune")
    resources:
        **resource_of("finetune"),
    shell:
        "{JOB:q} train --data {DATA:q} "
        "--model {output.model:q} --depends {input.baseline:q} {input.plan:q} --log {log:q} "
        "--label {wildcards.row:q}' seed '{wildcards.seed} --threads {threads} "
        "--precision {params.precision} -- --user-dir {PLUGIN:q} {params.flags:q} "
        "--seed {wildcards.seed} --head-plan {input.plan:q} "
        "--finetune-from-model {input.baseline:q}"


rule generate:
    input:
        data=f"{DATA}/prep.json",
        model=f"{OUT}/{{model}}/model.pt",
    output:
        f"{OUT}/{{model}}/generation.txt",
    params:
        flags=lambda wildcards: STUDY.generate_flags,
        precision=STUDY.precision,
    wildcard_constraints:
        model="baseline|finetuned/.+",
    log:
        f"{OUT}/logs/{{model}}/generate.log",
    threads: threads_of("generate")
    resources:
        **resource_of("generate"),
    shell:
        "{JOB:q} generate --data {DATA:q} --model {input.model:q} --output {output:q} --log {log:q} "
        "--label {wildcards.model:q}': translation' --threads {threads} "
        "--precision {params.precision} -- --user-dir {PLUGIN:q} {params.flags:q}"


rule generate_before_finetune:
    input:
        data=f"{DATA}/prep.json",
        model=f"{OUT}/baseline/model.pt",
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        f"{OUT}/before-finetune/{{row}}/seed{{seed}}/generation.txt",
    params:
        flags=lambda wildcards: STUDY.generate_flags,
        precision=STUDY.precision,
        form=STUDY.form,
    log:
        f"{OUT}/logs/before-finetune/{{row}}/seed{{seed}}/generate.log",
    threads: threads_of("generate")
    resources:
        **resource_of("generate"),
    shell:
        "{JOB:q} generate --data {DATA:q} --model {input.model:q} --output {output:q} --log {log:q} "
        "--head-plan {input.plan:q} --head-form {params.form} "
        "--label 'before fine-tuning, '{wildcards.row:q}' seed '{wildcards.seed}': translation' "
        "--threads {threads} --precision {params.precision} -- --user-dir {PLUGIN:q} "
        "{params.flags:q}"


rule score:
    input:
        generation=f"{OUT}/{{model}}/generation.txt",
        plan=plan_of,
        training=training_of,
    output:
        f"{OUT}/{{model}}/result.json",
    params:
        flags=score_flags,
        training=lambda wildcards, input: [f"--training={input.training}"] * bool(input.training),
    wildcard_constraints:
        model="baseline|(finetuned|before-finetune)/.+",
    log:
        f"{OUT}/logs/{{model}}/score.log",
    threads: threads_of("score")
    resources:
        **resource_of("score"),
    shell:
        "headprune score {input.generation:q} --reference {REFERENCE:q} "
        "--plan {input.plan:q} {params.training:q} {params.flags:q} --output {output:q} "
        "2>{log:q} >&2 || {{ cat {log:q} >&2; exit 1; }}"


rule report:
    input:
        RESULTS,
    output:
        f"{OUT}/table.md",
        f"{OUT}/table.csv",
        f"{OUT}/table.json",
        f"{OUT}/figure.png",
        f"{OUT}/figure.svg",
    params:
        title=lambda wildcards: STUDY.description or STUDY.name,
        paper=[f"--paper={table}" for table in STUDY.paper],
    log:
        f"{OUT}/logs/report.log",
    threads: threads_of("report")
    resources:
        **resource_of("report"),
    shell:
        "headprune report {input:q} --title {params.title:q} {params.paper:q} "
        "--output-dir {OUT:q} 2>{log:q} || {{ cat {log:q} >&2; exit 1; }}"

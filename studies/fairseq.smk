"""A translation study: prepare the data, train the baseline, prune it, fine-tune, score, report."""

from headprune.budget import Budget
from headprune.recovery.variant import GateTraining, Variant
from studies.plugin import variants

SCRIPT = ROOT / STUDY.data.script
if not SCRIPT.is_file():
    raise WorkflowError(f"{STUDY_FILE}: data.script: there is no {SCRIPT}")
if not os.access(SCRIPT, os.X_OK):
    raise WorkflowError(f"{STUDY_FILE}: data.script: {SCRIPT} is not executable")

# A study may share the data, or data and baseline, of another one: they are in its run folder.
DATA_HOME = home_of(STUDY.data_home)
BASE_HOME = home_of(STUDY.baseline_home)
HOMES = [OUT, DATA_HOME, BASE_HOME]
DATA = f"{DATA_HOME}/data"
BASELINE = f"{BASE_HOME}/baseline"
if STUDY.baseline_model is not None:
    from data_prep.lib.download import digest

    TRAINED = str(STUDY.baseline_model)
    digest_of = cache(digest)  # a rule asks for it several times
    try:
        require_outside(STUDY.baseline_model, HOMES, key="baseline_model")
    except HeadpruneError as problem:
        raise WorkflowError(f"{STUDY_FILE}: {problem}") from None
BASE_PLAN = f"{BASE_HOME}/plans/{CONTROL.key}/seed{STUDY.baseline_seed}.json"
REFERENCE = f"{DATA}/raw/test.{STUDY.data.pair[1]}"
JOB = [PYTHON, f"{ROOT}/studies/fairseq_job.py"]
PLUGIN = f"{ROOT}/fairseq_plugin"
# Not among the parameters of a rule: data from another folder are no reason to train again.
FROM_DIR = ["--from-dir", str(DATA_DIR)] if DATA_DIR else []

# A training depends on the study's flags alone, so that it is not repeated after an edit of a
# comment, of the seeds or of the plans. Programs are not inputs: a corrected script must not discard
# a week of training.
TRAINING = ["--arch", STUDY.arch, *STUDY.model_flags]
TEACHER = ["--distill-from", f"{BASELINE}/model.pt"] if STUDY.finetune.distilled else []
MODELS = {model.folder: model for model in STUDY.models(STUDY.rows)}

REPORTS = [file for table in TABLES for file in page_and_report_files(f"{OUT}/tables/{table}")]


RECORD_FILES = ("result.json", "result.hyp.txt")


def results_of(rows):
    """The records that a table of some rows is made of."""
    return [f"{OUT}/{model.folder}/result.json" for model in STUDY.models(rows)]


def outputs_of(rows):
    """The records of some rows, and the translations that they name."""
    return [f"{OUT}/{model.folder}/{name}" for model in STUDY.models(rows) for name in RECORD_FILES]


def trained_here(rows):
    """The models of some rows that were trained in this run folder, and their translations.

    Records that were made elsewhere have none, and need none.
    """
    folders = [Path(OUT, model.folder) for model in STUDY.models(rows)]
    trained = [folder for folder in folders if Path(folder, "model.json").is_file()]
    return [str(folder / name) for folder in trained for name in ("model.pt", "generation.txt")]


# All outputs are targets, so that a deleted one is made again when the tables are complete.
TARGETS = [
    *(REPORTS or page_and_report_files(OUT)),
    *outputs_of(chosen_rows(STUDY, TABLES)),
    *trained_here(chosen_rows(STUDY, TABLES)),
]


def score_file(name):
    return f"{BASELINE}/scores/{name}/{name}.json"


def scores_of(row):
    return score_file(row.score) if row.score else []


def scores_shown(rows):
    """The scores that the page of some rows shows beside the heads that the models keep."""
    names = dict.fromkeys([*(row.score for row in rows if row.score), *STUDY.scores])
    return [score_file(name) for name in names]


# The files that this study writes in the run folders that it shares.
SHARED = [f"{DATA}/prep.json"]
if BASE_HOME != OUT:
    SHARED += [BASE_PLAN, f"{BASELINE}/model.pt", f"{BASELINE}/generation.txt"]
    SHARED += scores_shown(chosen_rows(STUDY, TABLES))


def processes_of(wildcards, resources):
    """One process for each GPU.

    Snakemake does not run a job again when a parameter that depends on resources changes.
    """
    return max(1, resources.get("gpu", 0))


def home_of_model(wildcards):
    """The run folder with the files of a model: the baseline may be another study's."""
    return BASE_HOME if wildcards.model == STUDY.baseline.folder else OUT


def plan_of(wildcards):
    model = MODELS[wildcards.model]
    if model.row.learns_gates:
        return f"{OUT}/{model.folder}/plan.json"
    return f"{home_of_model(wildcards)}/plans/{model.row.key}/seed{model.seed}.json"


def training_of(wildcards):
    """The file that describes the training of the scored model."""
    is_trained = MODELS[wildcards.model].is_trained
    return f"{home_of_model(wildcards)}/{wildcards.model}/model.json" if is_trained else []


def gate_flags(row):
    """The flags of the fine-tuning with gates that chooses the heads of a row."""
    components = row.components or tuple(STUDY.shape)
    gates = GateTraining(components=components, budget=Budget(row.percent))
    flags = variants.variant_flags(STUDY.finetune.flags, Variant(gates=gates), components=())
    return [*TRAINING, *flags]


def score_flags(wildcards):
    model = MODELS[wildcards.model]
    flags = {
        "study": STUDY.name,
        "kind": model.kind,
        "row": model.label,
        "seed": model.seed,
        "select": model.row.select,
        "form": "none" if model.row is CONTROL else STUDY.form,
        "finetune": model.finetune,
        "data": STUDY.data.name,
    }
    if model.row.requested_percent is not None:
        flags["requested-percent"] = f"{model.row.requested_percent:g}"
    return [f"--{name}={value}" for name, value in flags.items()]


def training_command(*, from_baseline=False, closed_plan=False):
    """The shell command of a rule that trains the model of a row, with the baseline's weights or not.

    With ``closed_plan`` the gates that were learned are closed, and their plan is written.
    """
    closing = "--closed-plan {output.plan:q} " if closed_plan else ""
    depends = "{input.baseline:q} {input.plan:q}" if from_baseline else "{input.plan:q}"
    start = "--finetune-from-model {input.baseline:q} " if from_baseline else ""
    return (
        "{params.gpus:q} {JOB:q} train --data {DATA:q} "
        "--model {output.model:q} " + closing + "--depends " + depends + " --log {log:q} "
        "--label {wildcards.row:q}' seed '{wildcards.seed} --threads {threads} "
        "--processes {params.processes} --precision {params.precision} -- "
        "--user-dir {PLUGIN:q} {params.flags:q} "
        "--seed {wildcards.seed} --head-plan {input.plan:q} " + start +
        "|| {{ " + end_of_log() + "; exit 1; }}"
    )


localrules:
    score,


rule prepare:
    output:
        f"{DATA}/prep.json",
    params:
        script=lambda wildcards: STUDY.data.script,
        flags=lambda wildcards: STUDY.data.args,
    log:
        f"{DATA_HOME}/logs/prepare.log",
    threads: threads_of("prepare")
    retries: RETRIES
    resources:
        **resource_of("prepare"),
    shell:
        # The preparation resumes after an interruption, so only its last file is an output.
        'out=$(realpath -m {DATA:q}); log=$(realpath -m {log:q}); cd {ROOT:q}; '
        'if ! {SCRIPT:q} --out "$out" --workers {threads} {params.flags:q} {FROM_DIR:q} 2>&1 '
        # All output goes to the log; notes that it waits for another preparation also to the terminal.
        '| tee -a "$log" | {{ grep --line-buffered "^note: " >&2 || cat >/dev/null; }}; then '
        'tail -n 20 "$log" >&2; exit 1; fi'


if STUDY.baseline_model is None:

    rule baseline:
        input:
            data=f"{DATA}/prep.json",
            # The plan prunes nothing; with it, fairseq refuses a shape that is not the architecture's.
            plan=BASE_PLAN,
        output:
            model=f"{BASELINE}/model.pt",
            facts=f"{BASELINE}/model.json",
        params:
            flags=lambda wildcards: [*TRAINING, *STUDY.train.flags, "--seed", STUDY.baseline_seed],
            precision=STUDY.precision,
            processes=processes_of,
            gpus=gpus_of,
        log:
            f"{BASE_HOME}/logs/baseline/train.log",
        threads: threads_of("baseline")
        retries: RETRIES
        resources:
            **resource_of("baseline"),
        shell:
            "{params.gpus:q} {JOB:q} train --data {DATA:q} --keep-checkpoints "
            "--model {output.model:q} --depends {input.plan:q} --log {log:q} "
            "--label baseline --threads {threads} --processes {params.processes} "
            "--precision {params.precision} -- --user-dir {PLUGIN:q} {params.flags:q} "
            "--head-plan {input.plan:q} "
            "|| {{ " + end_of_log() + "; exit 1; }}"

else:

    rule baseline:
        input:
            data=f"{DATA}/prep.json",
        output:
            model=f"{BASELINE}/model.pt",
            facts=f"{BASELINE}/model.json",
        params:
            flags=lambda wildcards: TRAINING,
            # Its content, and neither its place nor its time: a moved checkout repeats nothing.
            digest=lambda wildcards: digest_of(TRAINED),
        log:
            f"{BASE_HOME}/logs/baseline/copy.log",
        threads: threads_of("generate")
        retries: RETRIES
        resources:
            **{name: value for name, value in resource_of("generate").items() if name != "gpu"},
        shell:
            "{JOB:q} copy --data {DATA:q} --checkpoint {TRAINED:q} "
            "--model {output.model:q} --log {log:q} --label baseline --threads {threads} "
            "-- {params.flags:q} "
            "|| {{ " + end_of_log() + "; exit 1; }}"


rule finetune:
    input:
        data=f"{DATA}/prep.json",
        baseline=f"{BASELINE}/model.pt",
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        model=f"{OUT}/finetuned/{{row}}/seed{{seed}}/model.pt",
        facts=f"{OUT}/finetuned/{{row}}/seed{{seed}}/model.json",
    params:
        flags=lambda wildcards: [
            *[*TRAINING, "--head-form", STUDY.form, *STUDY.finetune.flags],
            *TEACHER,
        ],
        precision=STUDY.precision,
        processes=processes_of,
        gpus=gpus_of,
    log:
        f"{OUT}/logs/finetuned/{{row}}/seed{{seed}}/train.log",
    threads: threads_of("finetune")
    retries: RETRIES
    resources:
        **resource_of("finetune"),
    shell:
        training_command(from_baseline=True)


rule gates:
    input:
        data=f"{DATA}/prep.json",
        baseline=f"{BASELINE}/model.pt",
        # Nothing is pruned yet.
        plan=f"{OUT}/plans/{CONTROL.key}/seed{{seed}}.json",
    output:
        model=f"{OUT}/gates/{{row}}/seed{{seed}}/model.pt",
        facts=f"{OUT}/gates/{{row}}/seed{{seed}}/model.json",
        plan=f"{OUT}/gates/{{row}}/seed{{seed}}/plan.json",
    params:
        flags=lambda wildcards: gate_flags(STUDY.row(wildcards.row)),
        precision=STUDY.precision,
        processes=processes_of,
        gpus=gpus_of,
    log:
        f"{OUT}/logs/gates/{{row}}/seed{{seed}}/train.log",
    threads: threads_of("finetune")
    retries: RETRIES
    resources:
        **resource_of("finetune"),
    shell:
        training_command(from_baseline=True, closed_plan=True)


rule scratch:
    input:
        data=f"{DATA}/prep.json",
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        model=f"{OUT}/scratch/{{row}}/seed{{seed}}/model.pt",
        facts=f"{OUT}/scratch/{{row}}/seed{{seed}}/model.json",
    params:
        flags=lambda wildcards: [*TRAINING, "--head-form", STUDY.form, *STUDY.train.flags],
        precision=STUDY.precision,
        processes=processes_of,
        gpus=gpus_of,
    log:
        f"{OUT}/logs/scratch/{{row}}/seed{{seed}}/train.log",
    threads: threads_of("finetune")
    retries: RETRIES
    resources:
        **resource_of("baseline"),
    shell:
        training_command()


rule scores:
    input:
        data=f"{DATA}/prep.json",
        model=f"{BASELINE}/model.pt",
    output:
        f"{BASELINE}/scores/{{score}}/{{score}}.json",
    params:
        gpus=gpus_of,
    log:
        f"{BASE_HOME}/logs/baseline/scores/{{score}}.log",
    threads: threads_of("scores")
    retries: RETRIES
    resources:
        **resource_of("scores"),
    shell:
        # On the validation set, never on the one that the models are measured on.
        "folder=$(dirname {output:q}); "
        "OMP_NUM_THREADS={threads} {params.gpus:q} headprune scores {input.model:q} --data {DATA:q}/bin "
        '--split valid --score {wildcards.score} --output "$folder" >{log:q} 2>&1 '
        "|| {{ " + end_of_log(20) + "; exit 1; }}"


rule calibrate:
    input:
        data=f"{DATA}/prep.json",
    output:
        f"{OUT}/{CALIBRATION}",
    params:
        # The flags of what is measured, so that it is measured again when they change.
        flags=lambda wildcards: [*TRAINING, *STUDY.finetune.flags, *STUDY.generate_flags],
        precision=STUDY.precision,
        processes=processes_of,
        gpus=gpus_of,
    log:
        f"{OUT}/logs/calibrate.log",
    threads: threads_of("finetune")
    retries: RETRIES
    resources:
        **resource_of("finetune"),
    shell:
        "{params.gpus:q} {PYTHON:q} -m studies.calibrate {STUDY_FILE:q} --data {DATA:q} --threads {threads} "
        "--processes {params.processes} --output {output:q} >{log:q} 2>&1 || {{ " + end_of_log() + "; exit 1; }}"


rule generate:
    input:
        data=f"{DATA}/prep.json",
        model="{home}/{model}/model.pt",
    output:
        "{home}/{model}/generation.txt",
    params:
        flags=lambda wildcards: STUDY.generate_flags,
        precision=STUDY.precision,
        gpus=gpus_of,
    wildcard_constraints:
        model="baseline|(finetuned|gates|scratch)/.+",
    log:
        "{home}/logs/{model}/generate.log",
    threads: threads_of("generate")
    retries: RETRIES
    resources:
        **resource_of("generate"),
    shell:
        "{params.gpus:q} {JOB:q} generate --data {DATA:q} --model {input.model:q} "
        "--output {output:q} --log {log:q} "
        "--label {wildcards.model:q}': translation' --threads {threads} "
        "--precision {params.precision} -- --user-dir {PLUGIN:q} {params.flags:q} "
        "|| {{ " + end_of_log() + "; exit 1; }}"


rule generate_before_finetune:
    input:
        data=f"{DATA}/prep.json",
        model=f"{BASELINE}/model.pt",
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        f"{OUT}/before-finetune/{{row}}/seed{{seed}}/generation.txt",
    params:
        flags=lambda wildcards: STUDY.generate_flags,
        precision=STUDY.precision,
        gpus=gpus_of,
        form=STUDY.form,
    log:
        f"{OUT}/logs/before-finetune/{{row}}/seed{{seed}}/generate.log",
    threads: threads_of("generate")
    retries: RETRIES
    resources:
        **resource_of("generate"),
    shell:
        "{params.gpus:q} {JOB:q} generate --data {DATA:q} --model {input.model:q} "
        "--output {output:q} --log {log:q} "
        "--head-plan {input.plan:q} --head-form {params.form} "
        "--label 'before fine-tuning, '{wildcards.row:q}' seed '{wildcards.seed}': translation' "
        "--threads {threads} --precision {params.precision} -- --user-dir {PLUGIN:q} "
        "{params.flags:q} "
        "|| {{ " + end_of_log() + "; exit 1; }}"


rule score:
    input:
        generation=lambda wildcards: (
            f"{home_of_model(wildcards)}/{wildcards.model}/generation.txt"
        ),
        plan=plan_of,
        training=training_of,
    output:
        result=f"{OUT}/{{model}}/result.json",
        hypotheses=f"{OUT}/{{model}}/result.hyp.txt",
    params:
        flags=score_flags,
        training=lambda wildcards, input: [f"--training={input.training}"] * bool(input.training),
    wildcard_constraints:
        model="baseline|(finetuned|gates|scratch|before-finetune)/.+",
    log:
        f"{OUT}/logs/{{model}}/score.log",
    threads: threads_of("score")
    retries: RETRIES
    resources:
        **resource_of("score"),
    shell:
        "headprune bleu {input.generation:q} --reference {REFERENCE:q} "
        "--plan {input.plan:q} {params.training:q} {params.flags:q} --output {output.result:q} "
        "2>{log:q} >&2 || {{ cat {log:q} >&2; exit 1; }}"

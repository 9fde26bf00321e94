"""A study of GLUE's or of your own tasks: prune a pretrained model, fine-tune, measure, report."""

from studies.glue_study import FIGURE2, is_own

HOMES = [OUT]
SHARED = []
CHANGED = STUDY.changed_runs()
KEPT = STUDY.kept_runs
# Not among the parameters of a rule: data from another folder are no reason to fine-tune again.
FROM_DIR = [f"--data-dir={DATA_DIR}"] if DATA_DIR else []
# A variable rather than a parameter of a rule, as older run folders know no such parameter.
OWN_TASKS = " ".join(task for task, flags in STUDY.tasks.items() if is_own(flags))


def target_of(table):
    """The report files of one of the study's tables; figure 2 is a report of changes."""
    folder = f"{OUT}/tables/{table}"
    if table == FIGURE2:
        return report_files(folder, "changes", "changes")
    return page_and_report_files(folder)


OWN_REPORTS = [
    *page_and_report_files(OUT),
    *(report_files(OUT, "changes", "changes") if CHANGED else []),
]


def scores_of(row):
    return []


def scores_shown(rows):
    return []


def results_of(rows):
    return [f"{OUT}/models/{run}/result.json" for run in STUDY.runs(rows)]


# The records are targets too, so that a deleted record is made again when the tables are complete.
TARGETS = [
    *([file for table in TABLES for file in target_of(table)] or OWN_REPORTS),
    *(
        f"{OUT}/models/{run}/{name}"
        for run in STUDY.runs_for(TABLES)
        for name in ("result.json", "predictions.tsv")
    ),
]


def changes_of(table):
    """The records of the models whose weight changes are measured.

    Args:
        table: a table of the study; None for the models of the key `changes`.
    """
    return [f"{OUT}/models/{run}/result.json" for run in STUDY.changed_runs(table)]


def changes_flags(table):
    """The models' folders and labels for `headprune changes`."""
    models = [f"{OUT}/models/{run}/model" for run in STUDY.changed_runs(table)]
    return models + [f"--label={STUDY.row(key).label}" for key in STUDY.changed_keys(table)]


def fine_tuning_flags(wildcards):
    """The options of a run that determine its result."""
    row = STUDY.row(wildcards.row)
    task = STUDY.tasks[wildcards.task]
    flags = {
        **(
            {"task-name": wildcards.task}
            if is_own(task)
            else {"task": wildcards.task, "model": STUDY.model}
        ),
        "seed": wildcards.seed,
        "study": STUDY.name,
        "row": row.label,
        "kind": "control" if row is CONTROL else "pruned",
        "select": row.select,
    }
    if row is not CONTROL:
        flags["form"] = wildcards.form
    if row.requested_percent is not None:
        flags["requested-percent"] = f"{row.requested_percent:g}"
    return [
        *([STUDY.model] if is_own(task) else []),
        *(f"--{name}={value}" for name, value in flags.items()),
        *task,
    ]


def is_changed(wildcards):
    """True if the run's model is kept after its predictions; models take most of the space."""
    return "{task}/{row}/{form}/seed{seed}".format(**wildcards) in KEPT


wildcard_constraints:
    task="[^/]+",
    form="[^/]+",


rule grid:
    output:
        f"{OUT}/grid/{{task}}/result.json",
    params:
        flags=lambda wildcards: [
            *(f"--task={wildcards.task}", f"--model={STUDY.model}", f"--seed={STUDY.seeds[0]}"),
            *(*STUDY.tasks[wildcards.task], *(STUDY.grid or ())),
        ],
        gpus=gpus_of,
    log:
        f"{OUT}/logs/grid/{{task}}.log",
    threads: threads_of("grid")
    retries: RETRIES
    resources:
        **resource_of("grid"),
    shell:
        # The search is done on the unpruned model, once for all rows. Cells and checkpoints of
        # options that the study had before are removed.
        "folder=$(dirname {output:q}); "
        "if ! {params.gpus:q} headprune glue {params.flags:q} {FROM_DIR:q} --threads {threads} "
        '--overwrite --output "$folder" >{log:q} 2>&1; then ' + end_of_log(20) + '; exit 1; fi; '
        'rm -rf "$folder/model" "$folder"/grid/*/model'


rule glue:
    input:
        # The files of a task of your own.
        lambda wildcards: STUDY.local_files(wildcards.task),
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
        grid=lambda wildcards: (
            [] if STUDY.grid is None else f"{OUT}/grid/{wildcards.task}/result.json"
        ),
    output:
        result=f"{OUT}/models/{{task}}/{{row}}/{{form}}/seed{{seed}}/result.json",
        predictions=f"{OUT}/models/{{task}}/{{row}}/{{form}}/seed{{seed}}/predictions.tsv",
    params:
        flags=fine_tuning_flags,
        keep_model=is_changed,
        gpus=gpus_of,
    log:
        f"{OUT}/logs/models/{{task}}/{{row}}/{{form}}/seed{{seed}}.log",
    threads: threads_of("glue")
    retries: RETRIES
    resources:
        **resource_of("glue"),
    shell:
        # After an interruption, it resumes after the last complete epoch; with other options than
        # before, it begins anew.
        "folder=$(dirname {output.result:q}); cell=; grid={input.grid:q}; "
        'if [ -n "$grid" ]; then cell=$({PYTHON:q} -m studies.chosen_cell "$grid"); fi; '
        "command=glue; set -- {FROM_DIR:q}; "
        'if [[ " {OWN_TASKS} " == *" {wildcards.task} "* ]]; then command=finetune; set --; fi; '
        'if ! {params.gpus:q} headprune "$command" {params.flags:q} "$@" --plan {input.plan:q} --threads {threads} $cell '
        '--overwrite --output "$folder" >{log:q} 2>&1; then ' + end_of_log(20) + '; exit 1; fi; '
        'if [ {params.keep_model} = False ]; then rm -rf "$folder/model"; fi'


rule calibrate:
    output:
        f"{OUT}/{CALIBRATION}",
    params:
        # The settings of the fine-tunings that are measured, so that they are measured again when
        # the settings change.
        model=lambda wildcards: STUDY.model,
        tasks=lambda wildcards: [[task, *flags] for task, flags in STUDY.tasks.items()],
        gpus=gpus_of,
    log:
        f"{OUT}/logs/calibrate.log",
    threads: threads_of("glue")
    retries: RETRIES
    resources:
        **resource_of("glue"),
    shell:
        "{params.gpus:q} {PYTHON:q} -m studies.calibrate {STUDY_FILE:q} {FROM_DIR:q} --threads {threads} "
        "--output {output:q} >{log:q} 2>&1 || {{ " + end_of_log() + "; exit 1; }}"


rule changes:
    input:
        changes_of(None),
    output:
        report_files(OUT, "changes", "changes"),
    params:
        before=lambda wildcards: STUDY.model,
        models=lambda wildcards: changes_flags(None),
    log:
        f"{OUT}/logs/changes.log",
    threads: threads_of("changes")
    retries: RETRIES
    resources:
        **resource_of("changes"),
    shell:
        "headprune changes {params.before:q} {params.models:q} "
        "--output-dir {OUT:q} 2>{log:q} || {{ cat {log:q} >&2; exit 1; }}"


rule figure2:
    input:
        lambda wildcards: changes_of(FIGURE2) if FIGURE2 in STUDY.tables else [],
    output:
        report_files(f"{OUT}/tables/{FIGURE2}", "changes", "changes"),
    params:
        before=lambda wildcards: STUDY.model,
        models=lambda wildcards: changes_flags(FIGURE2),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    log:
        f"{OUT}/logs/tables/{FIGURE2}.log",
    threads: threads_of("changes")
    retries: RETRIES
    resources:
        **resource_of("changes"),
    shell:
        "headprune changes {params.before:q} {params.models:q} "
        "--output-dir {params.folder:q} 2>{log:q} || {{ cat {log:q} >&2; exit 1; }}"

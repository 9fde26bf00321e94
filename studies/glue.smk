"""A GLUE study: prune the pretrained encoder, fine-tune it on each task, measure, report."""

CHANGED = STUDY.changed_runs()
# No parameter of a rule: where the data are taken from is no reason to fine-tune again.
FROM_DIR = [f"--data-dir={DATA_DIR}"] if DATA_DIR else []
TARGETS = [f"{OUT}/table.md", f"{OUT}/figure.png", *([f"{OUT}/changes.md"] if CHANGED else [])]


def glue_flags(wildcards):
    """What a run depends on, besides whether its model is kept."""
    row = STUDY.row(wildcards.row)
    flags = {
        "task": wildcards.task,
        "model": STUDY.model,
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
    return [f"--{name}={value}" for name, value in flags.items()] + list(
        STUDY.tasks[wildcards.task]
    )


def is_changed(wildcards):
    """Whether the run's model is needed after its predictions: models take most of the space."""
    return "{task}/{row}/{form}/seed{seed}".format(**wildcards) in CHANGED


wildcard_constraints:
    task="[^/]+",
    form="[^/]+",


rule glue:
    input:
        plan=f"{OUT}/plans/{{row}}/seed{{seed}}.json",
    output:
        result=f"{OUT}/models/{{task}}/{{row}}/{{form}}/seed{{seed}}/result.json",
        predictions=f"{OUT}/models/{{task}}/{{row}}/{{form}}/seed{{seed}}/predictions.tsv",
    params:
        flags=glue_flags,
        keep_model=is_changed,
    log:
        f"{OUT}/logs/models/{{task}}/{{row}}/{{form}}/seed{{seed}}.log",
    threads: threads_of("glue")
    resources:
        **resource_of("glue"),
    shell:
        # Killed, it goes on after the last whole epoch.
        "folder=$(dirname {output.result:q}); "
        "if ! headprune glue {params.flags:q} {FROM_DIR:q} --plan {input.plan:q} --threads {threads} "
        '--output "$folder" >{log:q} 2>&1; then tail -n 20 {log:q} >&2; exit 1; fi; '
        'if [ {params.keep_model} = False ]; then rm -rf "$folder/model"; fi'


rule report:
    input:
        [f"{OUT}/models/{run}/result.json" for run in STUDY.runs()],
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


rule changes:
    input:
        [f"{OUT}/models/{run}/result.json" for run in CHANGED],
    output:
        f"{OUT}/changes.md",
        f"{OUT}/changes.csv",
        f"{OUT}/changes.json",
        f"{OUT}/changes.png",
        f"{OUT}/changes.svg",
    params:
        before=lambda wildcards: STUDY.model,
        models=[f"{OUT}/models/{run}/model" for run in CHANGED],
        labels=lambda wildcards: [
            f"--label={STUDY.row(key).label}" for key in STUDY.changes.keys
        ],
    log:
        f"{OUT}/logs/changes.log",
    threads: threads_of("changes")
    resources:
        **resource_of("changes"),
    shell:
        "headprune changes {params.before:q} {params.models:q} {params.labels:q} "
        "--output-dir {OUT:q} 2>{log:q} || {{ cat {log:q} >&2; exit 1; }}"

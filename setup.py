"""Packaging of headprune; the tools' settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
version: dict[str, str] = {}
exec((ROOT / "headprune" / "version.py").read_text(encoding="utf-8"), version)

FAIRSEQ = [
    # fairseq-fixed is fairseq's main branch made to import on Python 3.11. Its own dependencies
    # include an audio library that changes torch's version, so `make` installs it without them.
    "fairseq-fixed==0.12.3.1",
    "hydra-core>=1.3.2",
    "omegaconf>=2.3",
    "sacrebleu>=2.4",
    "scipy",
]
DATA = ["sacremoses", "subword-nmt", "sentencepiece", "num2words", "babel", "tqdm"]
STUDIES = ["snakemake>=9", "pyyaml", "sacrebleu>=2.4", "matplotlib>=3.8", "scipy"]
SLURM = ["snakemake-executor-plugin-slurm>=2.8"]
HF = [
    "transformers>=5.6",  # before, the Trainer does not go on exactly where it was killed
    "num2words",
    "accelerate",
    "datasets",
    "scikit-learn",
    "scipy",
    "matplotlib>=3.8",
]
# What the tests check that pruned models work with.
INTEROPERATION = ["peft"]
CTRANSLATE2 = ["ctranslate2>=4.8"]
ONNX = ["onnx", "onnxscript", "onnxruntime"]
SYNTAX = ["conllu"]  # reads parsed sentences
IMAGES = ["pillow"]  # reads images of image classifiers
TENSORBOARD = ["tensorboard"]
JA = ["sacrebleu[ja]>=2.4"]  # MeCab, with which sacreBLEU finds the words of Japanese
DOCS = ["sphinx", "myst-parser", "furo"]

setup(
    name="headprune",
    version=version["__version__"],
    description="Prune heads, neurons and layers of Transformers, and measure what that costs",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11,<3.13",
    packages=find_packages(
        include=[
            f"{name}{below}"
            for name in ("headprune", "fairseq_plugin", "hf_plugin", "data_prep")
            for below in ("", ".*")
        ]
    ),
    package_data={
        "headprune": ["py.typed", "results/*.json", "report/templates/*"],
        "fairseq_plugin": ["py.typed"],
        "hf_plugin": ["py.typed"],
        "data_prep": ["py.typed", "*.sh", "lib/*.sh"],
    },
    install_requires=["torch>=2.6", "numpy", "typer>=0.12", "rich", "sacrebleu>=2.4", "jinja2"],
    extras_require={
        "fairseq": FAIRSEQ,
        "hf": HF,
        "data": DATA,
        "studies": STUDIES,
        "slurm": [*STUDIES, *SLURM],
        "ctranslate2": CTRANSLATE2,
        "onnx": ONNX,
        "syntax": SYNTAX,
        "images": IMAGES,
        "ja": JA,
        "tensorboard": TENSORBOARD,
        "docs": DOCS,
        "dev": [
            *("pytest", "hypothesis", "pytest-xdist", "ruff", "mypy", "psutil"),
            *(*INTEROPERATION, *CTRANSLATE2, *ONNX, *SYNTAX, *IMAGES, *TENSORBOARD, *DOCS),
        ],
    },
    entry_points={
        "console_scripts": ["headprune = headprune.cli:main"],
        # NAME.KIND: see headprune/backends.py.
        "headprune.backends": [
            "fairseq.file = fairseq_plugin.backend:backend",
            "huggingface.folder = hf_plugin.backend:backend",
            "huggingface.hub = hf_plugin.backend:backend",
        ],
        # The command's name, and its typer app: see headprune/cli/group.py.
        "headprune.commands": [
            "changes = hf_plugin.cli.changes:app",
            "finetune = hf_plugin.cli.finetune:app",
            "glue = hf_plugin.cli.glue:app",
        ],
    },
)

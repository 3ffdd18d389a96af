# Train CLIP on images and their captions.
rule train_clip:
    input:
        stages.inputs("train_clip"),
    output:
        stages.outputs("train_clip"),
    log:
        "logs/train_clip.log",
    benchmark:
        "logs/timing/train_clip.tsv"
    threads: stages.threads("train_clip")
    resources:
        gpu=stages.gpu("train_clip"),
    shell:
        "dvc --wait-for-lock repro --single-item train_clip"

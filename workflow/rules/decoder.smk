# Train one U-Net of the decoder.
rule train_decoder:
    input:
        stages.inputs("train_decoder@{item}"),
    output:
        stages.outputs("train_decoder"),
    log:
        "logs/train_decoder-{item}.log",
    benchmark:
        "logs/timing/train_decoder-{item}.tsv"
    threads: stages.threads("train_decoder")
    resources:
        gpu=stages.gpu("train_decoder"),
    shell:
        "dvc --wait-for-lock repro --single-item train_decoder@{wildcards.item}"

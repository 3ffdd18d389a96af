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
    priority: 1  # a long way through the DAG leads here
    threads: stages.threads("train_decoder")
    resources:
        gpu=stages.gpu("train_decoder"),
    shell:
        "dvc --wait-for-lock repro --single-item train_decoder@{wildcards.item} && python workflow/in_cache.py train_decoder@{wildcards.item}"


# Decode embeddings, and vary them.
rule sample_decoder:
    input:
        stages.inputs("sample_decoder"),
    output:
        stages.outputs("sample_decoder"),
    log:
        "logs/sample_decoder.log",
    benchmark:
        "logs/timing/sample_decoder.tsv"
    threads: stages.threads("sample_decoder")
    resources:
        gpu=stages.gpu("sample_decoder"),
    shell:
        "dvc --wait-for-lock repro --single-item sample_decoder && python workflow/in_cache.py sample_decoder"


# Train the network that reads scenes and never teaches.
rule train_scene_reader:
    input:
        stages.inputs("train_scene_reader"),
    output:
        stages.outputs("train_scene_reader"),
    log:
        "logs/train_scene_reader.log",
    benchmark:
        "logs/timing/train_scene_reader.tsv"
    threads: stages.threads("train_scene_reader")
    resources:
        gpu=stages.gpu("train_scene_reader"),
    shell:
        "dvc --wait-for-lock repro --single-item train_scene_reader && python workflow/in_cache.py train_scene_reader"


# Compare decoded images with their originals.
rule score_decoder:
    input:
        stages.inputs("score_decoder"),
    output:
        report(
            stages.outputs("score_decoder"),
            caption="../report/scores.rst",
            category="Scores",
        ),
    log:
        "logs/score_decoder.log",
    benchmark:
        "logs/timing/score_decoder.tsv"
    threads: stages.threads("score_decoder")
    resources:
        gpu=stages.gpu("score_decoder"),
    shell:
        "dvc --wait-for-lock repro --single-item score_decoder && python workflow/in_cache.py score_decoder"

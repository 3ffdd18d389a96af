# Write the page.
rule report:
    input:
        stages.inputs("report"),
    output:
        report(
            stages.outputs("report"),
            htmlindex="index.html",
            caption="../report/page.rst",
            category="Page",
        ),
    log:
        "logs/report.log",
    benchmark:
        "logs/timing/report.tsv"
    threads: stages.threads("report")
    shell:
        "dvc --wait-for-lock repro --single-item report && python workflow/in_cache.py report"

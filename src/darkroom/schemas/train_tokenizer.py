"""The sections that `train_tokenizer` reads."""

from typing import Literal

from pydantic import ValidationError, model_validator

from darkroom.params import Section
from darkroom.schemas.numbers import PartNames
from darkroom.schemas.run import Run
from darkroom.schemas.tokenizers.kind import Kind
from darkroom.schemas.tokenizers.kl import KL
from darkroom.schemas.tokenizers.vq_ar import VQAR
from darkroom.schemas.training import Training


def _merged(common: Training, kind: Kind) -> Training:
    return Training.model_validate({**common.model_dump(), **kind.training})


class TrainTokenizer(Section):
    """Which tokenizer, and how it is trained. Only the chosen kind's section is a dependency."""

    kind: Literal["kl", "vq_ar"]
    parts: PartNames | None = None  # read by `catalog`, so that a part that is not named changes nothing here
    common: Training
    kl: KL | None = None
    vq_ar: VQAR | None = None

    @property
    def chosen(self) -> Kind:
        """The section of the chosen kind."""
        section = getattr(self, self.kind)
        assert isinstance(section, Kind)  # `_chosen`
        return section

    @property
    def training(self) -> Training:
        """The settings of the training: `common`, with what the chosen kind has otherwise."""
        return _merged(self.common, self.chosen)

    @model_validator(mode="after")
    def _chosen(self) -> "TrainTokenizer":
        if getattr(self, self.kind) is None:
            raise ValueError(f"kind is {self.kind}, and the section `{self.kind}` is missing")
        return self

    @model_validator(mode="after")
    def _trainable(self) -> "TrainTokenizer":
        """Check `common` with what each kind that is there has otherwise, not only the chosen one."""
        for name in type(self).model_fields:
            section = getattr(self, name)
            if isinstance(section, Kind) and section.training:
                try:
                    _merged(self.common, section)
                except ValidationError as error:
                    fault = error.errors()[0]
                    key = ".".join(str(part) for part in ("training", *fault["loc"]))
                    raise ValueError(f"`{name}.{key}`: {fault['msg'].removeprefix('Value error, ')}") from None
        return self


class Params(Section):
    """What dvc.yaml gives to `train_tokenizer`."""

    run: Run
    train_tokenizer: TrainTokenizer

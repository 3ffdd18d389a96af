"""The sections that `train_tokenizer` reads."""

from pydantic import model_validator

from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.loss_settings import TEACHER, Perceptual
from darkroom.params.evaluate import EvaluateGenerator
from darkroom.params.kinds import of_kinds
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, PartNames, Positive, Rate, Section, Warmup
from darkroom.params.training import Optimizer, Training

_sections = {kind: TOKENIZERS.load("settings", kind) for kind in TOKENIZERS}


class TokenizerTraining(Training):
    """The training of a tokenizer."""

    images: Positive = 48_000
    batch: Positive = 32
    learning_rate: Rate = 0.002
    warmup: Warmup = 14_400
    optimizer: Optimizer = "muon"
    log_every: Positive = 960
    validate_every: Positive = 4800


class TrainTokenizer(of_kinds(_sections, "tokenizer")):  # type: ignore[misc]
    """Which tokenizer, and how it is trained."""

    training: TokenizerTraining = TokenizerTraining()
    """The keys of `training` that have another value here."""
    teacher: str = NO_FILE
    """Weights of the perceptual network: models/teacher; for lpips and vgg16 torchvision's file, or data/none."""
    evaluate: EvaluateGenerator = EvaluateGenerator()
    """Scores of a kind's own images while training, where it draws some (vq_ar); curves, which decide nothing."""
    parts: PartNames | None = None  # read by `catalog`, so that a part that is not named changes nothing here
    """Parts that it is trained on; a part that is not named trains and encodes nothing anew; null: all."""

    @property
    def perceptual(self) -> Perceptual | None:
        """The perceptual loss of the chosen kind; None where it has none."""
        found = getattr(self.chosen, "perceptual", None)
        return found if isinstance(found, Perceptual) and found.active else None

    @model_validator(mode="after")
    def _taught(self) -> "TrainTokenizer":
        if self.perceptual is None:
            return self
        network, key = self.perceptual.network, f"`{self.kind}.perceptual.network` is {self.perceptual.network}"
        if network == "teacher" and self.teacher == NO_FILE:
            raise ValueError(f"{key}, and `teacher` names no folder: it is {TEACHER}")
        if network != "teacher" and self.teacher == TEACHER:
            raise ValueError(
                f"{key}, and `teacher` names {TEACHER}: name a file with torchvision's weights of VGG16, or {NO_FILE} "
                "to download them"
            )
        return self

    @model_validator(mode="after")
    def _begun(self) -> "TrainTokenizer":
        game = getattr(self.chosen, "adversarial", None)
        if game is not None and game.active and game.start >= self.own_training.images:
            raise ValueError(
                f"`{self.kind}.adversarial.start` is {game.start:,}, and the training has "
                f"{self.own_training.images:,} images: the discriminator would never begin"
            )
        return self

    @property
    def untrained(self) -> str | None:
        """Why nothing is trained; None: it is."""
        if not TOKENIZERS.has("recipe", self.kind):
            return f"`train_tokenizer.kind` is {self.kind}, which is taken as it is"
        return None if self.chosen.trained else f"`train_tokenizer.{self.kind}.trained` is false"

    @model_validator(mode="after")
    def _given(self) -> "TrainTokenizer":
        init = self.own_training.init
        if not self.chosen.trained and init.url is None and init.folder == NO_FILE:
            raise ValueError(
                f"`{self.kind}.trained` is false, so the weights must be given: name them in "
                "`train_tokenizer.training.init`, or set it to true"
            )
        return self

    @model_validator(mode="after")
    def _imported_once(self) -> "TrainTokenizer":
        if self.untrained and self.training.processes > 1:
            raise ValueError(
                f"{self.untrained}, and one process does it: set `train_tokenizer.training.processes` to 1"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_tokenizer`."""

    run: Run
    train_tokenizer: TrainTokenizer

    @property
    def idle(self) -> str | None:
        """Why nothing is trained; None: it is."""
        return self.train_tokenizer.untrained

"""A finding: what is wrong with a case, as data from where it is found to the JSON. Text is made of it at the edge."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Explanation:
    """What a wrong result may come from: a misconception, known by its name and what it measures.

    Attributes:
        name: of an operator's misconception, or of one of those that any function may have.
        numbers: that tell two of one name apart, such as a factor.
        says: what was computed, in one sentence.
        section: of the handout, such as "handout/rmsnorm.md#algorithm".
        look: where to look, without the solution.
        is_rare: told only where no other explains as much.
    """

    name: str
    says: str = field(compare=False)
    section: str = field(compare=False, default="")
    look: str = field(compare=False, default="")
    numbers: tuple[float, ...] = ()
    is_rare: bool = field(compare=False, default=False)

    def __str__(self) -> str:
        """Return what the student reads."""
        return f"{self.says} ({self.section}). {self.look}" if self.section else self.says


def explanation(data: dict) -> Explanation:
    """Return what asdict made plain data of."""
    return Explanation(**data | {"numbers": tuple(data["numbers"])})

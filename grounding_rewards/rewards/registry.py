"""Names of rewards: a dict, and dotted paths for everything that is not in it."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grounding_rewards.rewards.average_precision as average_precision
import grounding_rewards.rewards.controls as controls
import grounding_rewards.rewards.f_beta as f_beta
from grounding_rewards.rewards.published import PUBLISHED

Factory = Callable[..., Any]

_SPECIFIED: dict[str, Factory] = {
    "R1": average_precision.AveragePrecisionReward,
    "R2": f_beta.ProductIoUReward,
    "R3": f_beta.MeanIoUReward,
    "R4": f_beta.SplineIoUReward,
    "R5": f_beta.PiecewiseIoUReward,
}
#: Controls that score texts.
TEXT_CONTROLS: dict[str, type[controls.TextReward]] = {
    "format_only": controls.FormatOnly,
    "constant": controls.Constant,
    "random": controls.Random,
    "consensus": controls.Consensus,
}
#: The rewards of the specification by name.
SPECIFICATION_REWARDS = tuple(_SPECIFIED)
#: Names of the rewards that do not ask boxes to fit: what a study compares the others with.
CONTROLS = ("pointing", *TEXT_CONTROLS)
#: All rewards by name; one that the specification does not have is one line here.
REGISTRY: dict[str, Factory] = {
    **_SPECIFIED,
    "soft_f1": f_beta.SoftF1Reward,
    "pointing": controls.PointingReward,
    **TEXT_CONTROLS,
}


def list_rewards(*, published: bool = False) -> list[str]:
    """Names of all registered rewards, in the order of their registration; of ours, the controls come last.

    Args:
        published: whether to name the rewards of others too, see :mod:`grounding_rewards.rewards.published`.

    Example:
        >>> list_rewards()[:5]
        ['R1', 'R2', 'R3', 'R4', 'R5']
        >>> CONTROLS
        ('pointing', 'format_only', 'constant', 'random', 'consensus')
        >>> list_rewards(published=True)[-3:]
        ['perception_r1_detection', 'vision_reasoner', 'nemo_rl']
    """
    names = list(REGISTRY)
    return names + list(PUBLISHED) if published else names


def register_reward(name: str, factory: Factory) -> Factory:
    """Make a reward available by name in :func:`grounding_rewards.get_reward` and in YAML.

    Args:
        name: the new name, the key under which TRL logs the reward.
        factory: a class, or anything else that is called with the parameters and returns an object with
            ``score(pred, gt) -> float``; or a function of ``pred`` and ``gt``. For the full speed and all metrics
            subclass :class:`grounding_rewards.rewards.BoxReward`.

    Returns:
        The factory, so that the function serves as ``register_reward("name", MyReward)`` below a class.

    Raises:
        ValueError: the name is taken by another factory, or is empty. A factory of the same name from the same module
            replaces the one before, as when a cell of a notebook runs again.

    Example:
        >>> class AnyHit:
        ...     def score(self, pred, gt):
        ...         return float(len(pred) > 0 and len(gt) > 0)
        >>> _ = register_reward("any-hit", AnyHit)
        >>> import grounding_rewards as gr
        >>> gr.get_reward("any-hit").score([[0, 0, 1, 1]], [[5, 5, 6, 6]])
        1.0
        >>> del REGISTRY["any-hit"]
    """
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"Expected a word without dots for `name`, got {name!r}. Dots mark an import path.")
    # The factory itself where the name is free: then nothing stands against it.
    registered = {**PUBLISHED, **REGISTRY}.get(name, factory)
    if registered is not factory and _origin(registered) != _origin(factory):
        raise ValueError(f"Expected a new name for `name`, got {name!r}, which is registered. Choose another.")
    REGISTRY[name] = factory
    return factory


class ParameterError(ValueError):
    """A reward does not take a parameter, or lacks one: commonly it was meant for another reward."""


@dataclass(frozen=True, repr=False)
class FunctionReward:
    """A function of predicted and reference boxes as a reward on boxes."""

    function: Callable[[Any, Any], float]

    def score(self, pred: Any, gt: Any) -> float:
        """The value of the function."""
        return self.function(pred, gt)

    def __repr__(self) -> str:
        # The function's own has its address, which changes from run to run.
        return name_of(self.function)


def name_of(reward: Any) -> str:
    """The name of a reward that is given by name or path, or as a class, a function or an instance.

    Example:
        >>> name_of("my_pkg.rewards.MyReward"), name_of(average_precision.AveragePrecisionReward())
        ('MyReward', 'AveragePrecisionReward')
    """
    if isinstance(reward, str):
        return reward.rpartition(".")[2]
    return getattr(reward, "__name__", type(reward).__name__)


def make_box_reward(reward: Any, params: Mapping[str, Any]) -> Any:
    """The reward on boxes that a name, a path or an object stands for, built with ``params``.

    Args:
        reward: a registered name, a dotted path, or what a path leads to: a class or factory, which is called with
            ``params``; a function of ``pred`` and ``gt``; or an object with ``score``, which is taken as it is.
        params: parameters by name.

    Raises:
        ValueError: unknown name, a path that cannot be imported, a parameter that does not exist or one that is
            missing; each lists what is legal.

    Example:
        >>> make_box_reward("R3", {"beta": 2}).beta
        2.0
        >>> make_box_reward(lambda pred, gt: float(len(pred) == len(gt)), {}).score([], [])
        1.0
    """
    factory, name = reward, name_of(reward)
    if not callable(reward) and not hasattr(reward, "score"):
        # A name or a path; a mistake in the place of one is refused there.
        factory, name = look_up(reward), reward
    is_class = inspect.isclass(factory)
    # Three kinds: a reward, which is taken as it is; a function of boxes; or what makes a reward when it is called.
    is_ready = not callable(factory) or (hasattr(factory, "score") and not is_class)
    arguments = [] if is_ready else _parameter_names(factory)
    is_function = not is_class and "pred" in arguments and "gt" in arguments
    if params and (is_ready or is_function):
        raise ParameterError(f"Expected no parameters for `{name}`, got {', '.join(params)}. A class takes them.")
    if is_ready:
        return factory
    if is_function:
        return FunctionReward(factory)
    if inspect.isabstract(factory):
        raise ValueError(f"Expected a complete reward for `reward`, got the abstract class {name!r}. Give a subclass.")
    check_parameters(name, factory, params)
    return factory(**params)


def look_up(name: str) -> Any:
    """The object of a name: the registered one, or the one at a dotted path.

    Raises:
        ValueError: unknown name, or a path that cannot be imported.

    Example:
        >>> look_up("R3").__name__
        'MeanIoUReward'
    """
    factories = {**PUBLISHED, **REGISTRY}
    if isinstance(name, str) and name in factories:
        return factories[name]
    if isinstance(name, str) and "." in name:
        module, _, attribute = name.rpartition(".")
        try:
            return getattr(importlib.import_module(module), attribute)
        except Exception as error:  # somebody's module may fail in any way
            raise ValueError(
                f"Expected an importable path for `reward`, got {name!r} ({type(error).__name__}: {error}). "
                "Check the spelling and PYTHONPATH."
            ) from error
    raise ValueError(
        f"Expected a known name for `reward`, got {name!r}. Use one of: {', '.join(REGISTRY)}; a published reward: "
        f"{', '.join(PUBLISHED)}; or a dotted path."
    )


def takes(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether an object can be called with these arguments, by its signature; True for a callable without a signature.

    Example:
        >>> takes(lambda pred, gt: 0.0, [], []), takes(lambda pred: 0.0, [], []), takes(None)
        (True, False, False)
    """
    if not callable(function):
        return False
    try:
        # The signature of what is really called: of a decorated function its wrapper, which may take other arguments.
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        # A built-in without a signature, which might take anything.
        return True
    return True


def takes_completions(reward: Any) -> bool:
    """Whether TRL can call this as a reward: a function of completions, or an object that is called so, but no class.

    Example:
        >>> takes_completions(lambda completions, **columns: [0.0]), takes_completions(dict)
        (True, False)
    """
    if not callable(reward) or inspect.isclass(reward):
        return False
    return "completions" in inspect.signature(reward).parameters


def check_parameters(name: str, factory: Factory, params: Mapping[str, Any]) -> None:
    """Refuse parameters that the factory does not take, and missing ones that it needs.

    Args:
        name: of the reward, for the message.
        factory: a class or function.
        params: what it would be called with.

    Raises:
        ParameterError: a parameter is unknown or missing; lists what is legal.

    Example:
        >>> check_parameters("any", lambda beta=1.0: None, {"betta": 2})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        grounding_rewards.rewards.registry.ParameterError: Expected known ... 'betta' (...). Use some of: beta.
    """
    try:
        signature = inspect.signature(factory)
    except ValueError:
        # Which parameters a built-in without a signature takes, only its call can tell.
        return
    try:
        signature.bind(**params)
    except TypeError as error:
        # All that can be given by name, so without `*args` and `**kwargs`.
        named_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        legal = [option.name for option in signature.parameters.values() if option.kind in named_kinds]
        # If no parameter is unknown, one that is needed is missing: the message then shows those that were given.
        unknown = [param for param in params if param not in legal]
        raise ParameterError(
            f"Expected known parameters for reward `{name}`, got {', '.join(map(repr, unknown or params)) or 'none'} "
            f"({error}). Use some of: {', '.join(legal) or 'none'}."
        ) from None


def spread_kwargs(rewards: Sequence[object], kwargs: object) -> list[dict[str, Any]]:
    """One dict of parameters for each reward.

    Args:
        rewards: the rewards.
        kwargs: None; a dict, for a single reward; or a list with a dict or None for each.

    Raises:
        ValueError: `kwargs` is something else or of another length.

    Example:
        >>> spread_kwargs(["R4", "R5"], [{"beta": 2}, None])
        [{'beta': 2}, {}]
    """
    if kwargs is None:
        return [{} for _ in rewards]
    mappings: Sequence[Any] = kwargs if isinstance(kwargs, list | tuple) else [kwargs]
    if len(mappings) == len(rewards) and all(params is None or isinstance(params, Mapping) for params in mappings):
        return [dict(params or {}) for params in mappings]
    expected = "a mapping" if len(rewards) == 1 else f"a list of {len(rewards)} mappings"
    raise ValueError(
        f"Expected {expected} for reward_kwargs, got {kwargs!r}. "
        "Write parameters by name, for example beta: 1.5; for several rewards one mapping each."
    )


def _origin(factory: Factory) -> tuple[Any, Any]:
    """The module and the name of a factory, the same when a cell of a notebook runs again.

    An object without a name, such as a partial, is its own origin.
    """
    return getattr(factory, "__module__", None), getattr(factory, "__qualname__", id(factory))


def _parameter_names(factory: Factory) -> list[str]:
    """The names of the parameters of a factory; none for a built-in without a signature."""
    try:
        return list(inspect.signature(factory).parameters)
    except ValueError:
        return []

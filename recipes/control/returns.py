"""Returns of several agents: a table, and curves with their spread."""

import numpy as np

from ..common.plots import new_axes, save


def first_returns(environments, step, number):
    """Return the returns of `number` episodes, the first ones of each environment.

    Each environment gives an equal share: the episodes that end first would more often be short.

    Args:
        environments: `Environments` in which no episode has begun before.
        step: function that acts once in all of them.
        number: int.
    """
    rows = environments.returns
    shares = [len(range(row, number, len(rows))) for row in range(len(rows))]
    while any(len(own) < share for own, share in zip(rows, shares, strict=True)):
        step()
    return [x for own, share in zip(rows, shares, strict=True) for x in own[:share]]


def summary_of(returns):
    """Return the mean of the returns of episodes, and its error, as the result of a card."""
    return {
        "metric": "return",
        "value": float(np.mean(returns)),
        "standard_error": float(np.std(returns) / np.sqrt(len(returns))),
        "episodes": len(returns),
    }


def table(cards):
    """Return a Markdown table of the mean return of each agent over its seeds, the best first.

    `cards` is a dict of an agent's name to the cards of its seeds.
    """
    lines = ["| model | return | of each seed | parameters |", "| --- | --: | --- | --: |"]
    returns_by_name = {name: _returns(runs) for name, runs in cards.items()}
    for name, values in sorted(returns_by_name.items(), key=lambda item: -_rank(item[1])):
        each, parameters = ", ".join(f"{x:.3f}" for x in values), cards[name][0]["parameters"]
        lines.append(f"| `{name}` | {np.mean(values):.3f} | {each} | {parameters:,} |")
    return lines


def best_of(cards):
    """Return the name of the agent with the highest mean return, and that return, as text."""
    returns_by_name = {name: _returns(runs) for name, runs in cards.items()}
    best = max(returns_by_name, key=lambda name: _rank(returns_by_name[name]))
    return f"{best} with a return of {np.mean(returns_by_name[best]):.3f}"


def draw(cards, path):
    """Draw the mean return over the environment's steps, and the range over the seeds, as PNG.

    Agents that learn from stored episodes have no such curve. An agent is left out too if the
    histories of its seeds differ in length, or are missing.
    """
    figure, axes = new_axes((7.6, 4.2))
    for name, runs in cards.items():
        histories = [card["history"] for card in runs]
        rows = [row for history in histories for row in history]
        is_even = len({len(history) for history in histories}) == 1
        if not (rows and is_even and "return" in rows[0]):
            continue
        returns = np.array([[_number(row["return"]) for row in history] for history in histories])
        epochs = np.arange(1, returns.shape[1] + 1)
        steps = epochs * runs[0]["steps"] / len(epochs) / 1000
        (line,) = axes.plot(steps, returns.mean(axis=0), label=name)
        low, high = returns.min(axis=0), returns.max(axis=0)
        axes.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
    axes.set(xlabel="thousand steps of all environments", ylabel="return", title=runs[0]["task"])
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves
    save(figure, path)


def _returns(cards):
    return [_number(card["results"]["test"]["value"]) for card in cards]


def _rank(returns):
    """Return the mean; of an agent whose returns are no numbers the lowest of all."""
    mean = np.mean(returns)
    return -np.inf if np.isnan(mean) else mean


def _number(value):
    return np.nan if value is None else float(value)

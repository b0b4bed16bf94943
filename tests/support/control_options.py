"""Options of small runs of `recipes.control`."""

SMALL = [
    *("--num-layers", "2", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7"),
    *("--num-envs", "3", "--rollout", "17", "--memory", "61", "--steps", "200", "--epochs", "2"),
    *("--passes", "2", "--episodes", "5", "--seeds", "1"),
]

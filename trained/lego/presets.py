"""The configurations of the lego study that `--preset` chooses."""

from trained.config import Preset

from .config import (
    Attention,
    Config,
    Features,
    Folded,
    SelfTraining,
    Standard,
    Theory,
    Trial,
)

QUICK = Config(
    groups=(),
    n_variables=60,
    lengths=(5, 10, 20, 40, 47),
    standard=Standard(
        variants=("plain", "positions"),
        groups=("C6", "S3"),
        n_variables=48,
        epochs=12,
        n_sentences=3200,
        batch=32,
        stop=0.007,
        token_std=2.0,
        position_std=0.4,
        gate=0.03,
        rounds=(10, 20),
        round_steps=100,
        n_round=512,
        null_seeds=1,
        null_epochs=6,
    ),
    theory=Theory(
        groups=("C6", "S4"),
        feature_groups=("S3",),
        n_variables=60,
        length=40,
        grid=(40, 60, 100),
        clips=(4.0, 8.0),
        record_every=5,
        features=Features(grid_steps=500),
        attention=Attention(rounds=3, rule_steps=300, round_steps=100),
    ),
)

PAPER = Config(
    extra_groups=("S3reg", "S4", "C24"),
    folded=Folded(budgets=(100, 200, 400, 600, 900), steps=600, masked_steps=400),
    self_training=SelfTraining(lengths=(10, 20, 40)),
    standard=Standard(
        variants=("plain", "positions"),
        kept=(100, 200, 280, 290),
        batch=64,
        n_sentences=5056,
        d_token=32,
        d_mlp=256,
        token_std=4.0,
        rounds=(10, 20, 40),
        round_steps=2000,
        seeds=5,
        null_seeds=1,
    ),
    theory=Theory(
        feature_groups=("S3", "S4"),
        n_variables=170,
        length=160,
        grid=(55, 95, 175, 335),
        grid_groups=("C6", "S4", "C4", "C24"),
        clips=(4.0, 8.0),
        record_every=5,
        features=Features(value_steps=6000),
        attention=Attention(batch=512, rounds=4),
    ),
    test=Trial(n_sentences=200),
)

ZOO = Config(
    groups=("C6", "S3"),
    n_variables=24,
    lengths=(5, 10, 20),
    folded=Folded(d_mlp=40, budgets=(50, 100), steps=100),
    self_training=SelfTraining(lengths=(10,), base_steps=50),
    standard=Standard(
        variants=("plain",),
        groups=("C3", "S3"),
        n_variables=24,
        n_sentences=4096,
        batch=64,
        epochs=40,
        d_token=16,
        d_mlp=64,
        token_std=2.0,
        gate=0.03,
    ),
    theory=Theory(
        groups=("C4", "S3"),
        feature_groups=(),
        n_variables=21,
        length=16,
        variable_neurons=2,
        value_neurons=8,
        features=Features(kept=10),
        attention=Attention(batch=192),
    ),
    twins=True,
)
"""Small enough to ship and to calibrate on, trained so little that length matters."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="two minutes"),
    "paper": Preset(PAPER, n_seeds=8, cost="three hours on one core"),
    "zoo": Preset(
        ZOO, n_seeds=3, cost="five minutes; the shipped run, for `calibrate`"
    ),
}

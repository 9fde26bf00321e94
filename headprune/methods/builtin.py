"""The methods that come with headprune, registered."""

from headprune.methods.adversarial import Adversarial
from headprune.methods.at_random import Random
from headprune.methods.by_location import BOTTOM, DROP_LAYERS, MIDDLE, TOP
from headprune.methods.in_steps import InSteps
from headprune.methods.kwon import Kwon
from headprune.methods.registry import register
from headprune.methods.subnetwork import Subnetwork
from headprune.methods.trained import TrainGates, TrainLayerDrop

for _method in (
    Random(),
    BOTTOM,
    MIDDLE,
    TOP,
    Adversarial(),
    InSteps(),
    Kwon(),
    Subnetwork(),
    *DROP_LAYERS,
    TrainGates(),
    TrainLayerDrop(),
):
    register(_method)

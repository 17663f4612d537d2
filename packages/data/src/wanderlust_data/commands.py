"""The commands `wander data`, `wander distil` and `wander import`, as their package declares them."""

from wanderlust.cli.commands import Command

DATA = Command(
    target="wanderlust_data.data_command:data",
    help="Make training data by a plan; compare recipes and teachers by what students learn.",
)
DISTIL = Command(
    target="wanderlust_data.distil_command:distil_command",
    help="Make a small student of a teacher: quality, latency and cost of both, and the break-even.",
)
IMPORT = Command(
    target="wanderlust_data.import_command:import_log_command",
    help="Read a log of inspect_ai as an evaluation.",
)

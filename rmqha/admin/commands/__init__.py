"""One mqadmin command a module; ``ALL`` lists them in the order of the help text."""

from __future__ import annotations

from rmqha.admin.commands import (
    clean_broker_metadata,
    elect_master,
    get_broker_epoch,
    get_controller_config,
    get_controller_meta_data,
    get_sync_state_set,
    update_controller_config,
)
from rmqha.admin.spec import CommandSpec

ALL: tuple[CommandSpec, ...] = (
    get_controller_meta_data.SPEC,
    get_sync_state_set.SPEC,
    get_broker_epoch.SPEC,
    elect_master.SPEC,
    clean_broker_metadata.SPEC,
    get_controller_config.SPEC,
    update_controller_config.SPEC,
)

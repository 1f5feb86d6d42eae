"""Named limits of the remoting layer, where whatever can grow has its maximum; keys of servers."""

from __future__ import annotations

from msgspec import Struct

FRAME_BYTES_MAX = 16_777_216
"""The Java default of ``com.rocketmq.remoting.frameMaxLength``; counts the length prefix."""

HEADER_BYTES_MAX = 262_144
"""A message's properties travel in the header: up to 32,767 bytes, of which JSON escaping can make
six each. 64 KiB would refuse legal messages; this never does."""

CONNECTIONS_MAX = 65_536

UNSENT_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""Of one connection; so much at least has to be there for all of them."""

HELD_BYTES_MAX = 32 * FRAME_BYTES_MAX

SERVER_DEFAULTS: dict[str, str] = {
    "bindAddress": "0.0.0.0",
    "configStorePath": "",
    "enableShutdownGracefully": "false",
    "metricsExporterType": "DISABLE",
    "metricsLabel": "",
    "metricsPromExporterHost": "",
    "metricsPromExporterPort": "5557",
    "rocketmqHome": "",
    "scanNotActiveBrokerInterval": "5000",
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverNettyWorkerGroupEnable": "true",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "shutdownWaitTimeSeconds": "30",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    # our own
    "connectionsMax": str(CONNECTIONS_MAX),
    "fileUmask": "077",
    "heldBytesMax": str(HELD_BYTES_MAX),
    "httpAllowedHosts": "",
    "logLevel": "info",
    "logStyle": "auto",
}
"""Keys of NettyServerConfig and of the process that controllers and name servers share, with Java's
defaults. Those that size Java's thread pools and buffers have no effect here."""


def too_little_held(text: str) -> str | None:
    """Why a number cannot be ``heldBytesMax``; None when it can."""
    if int(text) >= UNSENT_BYTES_MAX:
        return None
    return f"heldBytesMax={text} must be at least {UNSENT_BYTES_MAX}, what one connection may keep"


class RemotingSettings(Struct, frozen=True):
    """Limits and waits of connections, servers and clients. Durations are milliseconds.

    Attributes:
        frame_bytes_max: a whole frame with its 4-byte prefix; longer ones close the connection.
        header_bytes_max: a frame's header; longer ones close the connection.
        pending_requests_max: requests of one client connection that wait for an answer.
        write_buffer_bytes_max: unsent bytes of one connection; a peer that reads too slowly to
            stay below it is cut off. Must hold at least one whole frame.
        held_bytes_max: frames that are not whole and unsent bytes of all connections of one server;
            beyond it the one that keeps most is closed. Connections that keep little are not
            counted; all of these together keep half as much at most.
        connections_max: open connections of one server; further ones are closed at once.
        idle_timeout_ms: closes a connection with neither reads nor writes; 0 or less disables.
            There is no deadline for the first frame, because brokers probe with silent connections.
        connect_timeout_ms: how long a client tries to connect.
        invoke_timeout_ms: how long a client waits for an answer when the caller gives no timeout.
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX
    pending_requests_max: int = 65_536
    write_buffer_bytes_max: int = UNSENT_BYTES_MAX
    held_bytes_max: int = HELD_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    idle_timeout_ms: int = 120_000
    connect_timeout_ms: int = 3_000
    invoke_timeout_ms: int = 3_000

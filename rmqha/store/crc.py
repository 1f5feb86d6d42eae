"""CRC-32 as zlib has it, by the instructions that processors have for it.

Source: ISA-L, which takes a block of 64 KiB in a tenth of zlib's time; where it is not built for the
machine, zlib's own.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]

"""Whether rows that are rotated before they are quantized lose less at equal bytes."""

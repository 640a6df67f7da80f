#pragma once

/// What metal-cpp uses of IOSurface.
typedef struct __IOSurface* IOSurfaceRef;

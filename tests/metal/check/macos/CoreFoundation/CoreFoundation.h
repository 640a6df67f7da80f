#pragma once

/// What metal-cpp uses of CoreFoundation.
typedef const void* CFTypeRef;
typedef double CFTimeInterval;

/* ICU keeps this header for itself. */
#include <unicode/utypes.h>
#define U_ICUDATA_CURR U_ICUDATA_NAME "-curr"

/* ICU does not install this header. */
#include <unicode/utypes.h>
#define U_ICUDATA_CURR U_ICUDATA_NAME "-curr"

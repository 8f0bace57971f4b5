#pragma once
/* ICU does not install this header; here is the part that libcore uses. */
#include <unicode/strenum.h>
#include <unicode/uenum.h>
#include <unicode/udata.h>
#ifndef FALSE
#define FALSE 0
#define TRUE 1
#endif
U_NAMESPACE_BEGIN
class UStringEnumeration : public StringEnumeration {
  UEnumeration* all;
  UnicodeString one;
 public:
  explicit UStringEnumeration(UEnumeration* of) : all(of) {}
  ~UStringEnumeration() override { uenum_close(all); }
  int32_t count(UErrorCode& status) const override { return uenum_count(all, &status); }
  const UnicodeString* snext(UErrorCode& status) override {
    int32_t length = 0;
    const UChar* text = uenum_unext(all, &length, &status);
    return text && U_SUCCESS(status) ? &one.setTo(text, length) : nullptr;
  }
  void reset(UErrorCode& status) override { uenum_reset(all, &status); }
  UClassID getDynamicClassID() const override { return nullptr; }
};
U_NAMESPACE_END

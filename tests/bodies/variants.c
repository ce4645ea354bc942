/* What oleaut32 and ole32 make of values: each a line with the name of its type, its bytes in hex, and what it says.
 * tests/bodies/variants.txt has the lines that Wine 8.0 printed:
 *
 *     x86_64-w64-mingw32-gcc variants.c -o variants.exe -loleaut32 -lole32 -luuid && wine64 variants.exe
 */
#define COBJMACROS
#include <windows.h>
#include <objidl.h>
#include <oleauto.h>
#include <stdio.h>

static void line(const char *name, const void *data, size_t size, const char *said)
{
    const unsigned char *bytes = data;
    printf("%s ", name);
    for (size_t i = 0; i < size; i++) printf("%02x", bytes[i]);
    printf("%s %s\n", size ? "" : "-", said);
}

/* A value as text, by VariantChangeTypeEx without anybody's locale. */
static void variant(const char *name, VARIANT *value, const void *data, size_t size)
{
    VARIANT text;
    char said[200];
    VariantInit(&text);
    if (FAILED(VariantChangeTypeEx(&text, value, LOCALE_INVARIANT, 0, VT_BSTR))) strcpy(said, "error");
    else WideCharToMultiByte(CP_UTF8, 0, V_BSTR(&text), -1, said, sizeof said, NULL, NULL);
    line(name, data, size, said);
    VariantClear(&text);
}

#define NUMBER(type, member, number) do { VARIANT v; VariantInit(&v); V_VT(&v) = type; v.member = number; \
    variant(#type, &v, &v.member, sizeof v.member); } while (0)

static void date(WORD year, WORD month, WORD day, WORD hour, WORD minute, WORD second)
{
    SYSTEMTIME time = { year, month, 0, day, hour, minute, second, 0 }, back;
    double days;
    char said[40];
    SystemTimeToVariantTime(&time, &days);
    VariantTimeToSystemTime(days, &back);
    sprintf(said, "%04d-%02d-%02dT%02d:%02d:%02d", back.wYear, back.wMonth, back.wDay, back.wHour, back.wMinute, back.wSecond);
    line("VT_DATE", &days, sizeof days, said);
}

static void text(const WCHAR *said, const char *in_utf8)
{
    BSTR string = SysAllocString(said);
    line("VT_BSTR", string, SysStringByteLen(string), in_utf8);
    SysFreeString(string);
}

/* An object that writes its own four bytes: what OleSaveToStream puts before them. */
static HRESULT WINAPI query(IPersistStream *me, REFIID id, void **out) { *out = me; return S_OK; }
static ULONG WINAPI count(IPersistStream *me) { return 1; }
static HRESULT WINAPI class_of(IPersistStream *me, CLSID *id)
{
    static const CLSID mine = { 0x557358d1, 0x5055, 0x9591, { 0x95, 0x49, 0x97, 0xb6, 0xe6, 0x11, 0xea, 0x26 } };
    *id = mine;
    return S_OK;
}
static HRESULT WINAPI dirty(IPersistStream *me) { return S_OK; }
static HRESULT WINAPI load(IPersistStream *me, IStream *from) { return S_OK; }
static HRESULT WINAPI save(IPersistStream *me, IStream *to, BOOL clear) { return IStream_Write(to, "body", 4, NULL); }
static HRESULT WINAPI size(IPersistStream *me, ULARGE_INTEGER *bytes) { bytes->QuadPart = 4; return S_OK; }

int main(void)
{
    static IPersistStreamVtbl table = { query, count, count, class_of, dirty, load, save, size };
    IPersistStream object = { &table };
    CY money;
    CoInitialize(NULL);
    NUMBER(VT_I1, cVal, -128);
    NUMBER(VT_UI1, bVal, 255);
    NUMBER(VT_I2, iVal, -32768);
    NUMBER(VT_UI2, uiVal, 65535);
    NUMBER(VT_I4, lVal, -2147483647 - 1);
    NUMBER(VT_UI4, ulVal, 4294967295u);
    NUMBER(VT_I8, llVal, -9223372036854775807LL - 1);
    NUMBER(VT_UI8, ullVal, 18446744073709551615ULL);
    NUMBER(VT_R4, fltVal, 1.5f);
    NUMBER(VT_R8, dblVal, -0.0625);
    NUMBER(VT_BOOL, boolVal, VARIANT_TRUE);
    NUMBER(VT_BOOL, boolVal, VARIANT_FALSE);
    money.int64 = 15000; NUMBER(VT_CY, cyVal, money);
    money.int64 = -1; NUMBER(VT_CY, cyVal, money);
    money.int64 = 9223372036854775807LL; NUMBER(VT_CY, cyVal, money);
    date(1899, 12, 30, 0, 0, 0);
    date(1899, 12, 30, 6, 0, 0);
    date(1899, 12, 29, 6, 0, 0);
    date(1899, 12, 28, 18, 30, 15);
    date(1900, 1, 1, 0, 0, 1);
    date(1753, 1, 1, 23, 59, 59);
    date(2000, 2, 29, 12, 0, 0);
    date(2024, 1, 2, 3, 4, 5);
    date(9999, 12, 31, 23, 59, 59);
    text(L"", "");
    text(L"hello", "hello");
    text(L"\u20ac\xd83d\xde00 a\r\nb", "\xe2\x82\xac\xf0\x9f\x98\x80 a\\r\\nb");
    {
        CLSID id;
        WCHAR said[40];
        char narrow[40];
        class_of(&object, &id);
        StringFromGUID2(&id, said, 40);
        WideCharToMultiByte(CP_UTF8, 0, said, -1, narrow, sizeof narrow, NULL, NULL);
        line("VT_CLSID", &id, sizeof id, narrow);
    }
    {
        IStream *stream;
        HGLOBAL memory;
        STATSTG stat;
        CreateStreamOnHGlobal(NULL, TRUE, &stream);
        OleSaveToStream(&object, stream);
        IStream_Stat(stream, &stat, STATFLAG_NONAME);
        GetHGlobalFromStream(stream, &memory);
        line("VT_STREAMED_OBJECT", GlobalLock(memory), (size_t)stat.cbSize.QuadPart, "body");
    }
    return 0;
}

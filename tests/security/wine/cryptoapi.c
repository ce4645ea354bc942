/* The CryptoAPI, asked line by line: what Wine's providers make of our keys, bodies and signatures, and we of theirs.
 *
 * A line is a word, a provider, and what the word needs; all bytes in hex, "-" for none. The answer is one line as well,
 * "!" and GetLastError() if a function has failed. Key pairs that were made stay, one for each provider and use.
 *
 *   make     PROVIDER exchange|sign BITS             -> PUBLICKEYBLOB
 *   take     PROVIDER PRIVATEKEYBLOB                 -> PRIVATEKEYBLOB
 *   seal     PROVIDER ALGORITHM BITS EFFECTIVE SALT PUBLICKEYBLOB BODY -> SIMPLEBLOB BODY
 *   open     PROVIDER EFFECTIVE SALT SIMPLEBLOB BODY -> BODY
 *   sign     PROVIDER HASH DATA                      -> SIGNATURE
 *   verify   PROVIDER HASH PUBLICKEYBLOB DATA SIGNATURE -> 01 or 00
 *   key      PROVIDER CERTIFICATE                    -> PUBLICKEYBLOB
 *
 * EFFECTIVE is the effective length of an RC2 key in bits, 0 for the provider's own; SALT is "salt" for the provider's
 * own, or "none", which is CRYPT_NO_SALT. Compiled by x86_64-w64-mingw32-gcc -ladvapi32 -lcrypt32.
 */
#include <windows.h>
#include <wincrypt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE (1 << 20)
#define WORDS 8
#define BLOCK 16

enum { EXCHANGE, SIGN, USES };

static const struct {
    const char *word, *name;
    DWORD type;
} PROVIDERS[] = {
    {"base", MS_DEF_PROV_A, PROV_RSA_FULL},
    {"enhanced", MS_ENHANCED_PROV_A, PROV_RSA_FULL},
    {"aes", MS_ENH_RSA_AES_PROV_A, PROV_RSA_AES},
};
#define COUNT (sizeof PROVIDERS / sizeof *PROVIDERS)

static HCRYPTPROV contexts[COUNT];
static HCRYPTKEY pairs[COUNT][USES];

typedef struct {
    BYTE *data;
    DWORD size;
} Bytes;

static int failed(void) {
    printf("! %08lx\n", GetLastError());
    return 0;
}

static Bytes bytes_of(const char *hex) {
    DWORD size = *hex == '-' ? 0 : (DWORD)strlen(hex) / 2;
    Bytes made = {calloc(1, size + BLOCK), size};
    for (DWORD at = 0; at < size; at++) {
        unsigned value;
        sscanf(hex + 2 * at, "%2x", &value);
        made.data[at] = (BYTE)value;
    }
    return made;
}

static void show(Bytes bytes, char end) {
    if (!bytes.size) putchar('-');
    for (DWORD at = 0; at < bytes.size; at++) printf("%02x", bytes.data[at]);
    putchar(end);
}

static int export(HCRYPTKEY key, HCRYPTKEY to, DWORD type, Bytes *blob) {
    if (!CryptExportKey(key, to, type, 0, NULL, &blob->size)) return 0;
    blob->data = calloc(1, blob->size);
    return CryptExportKey(key, to, type, 0, blob->data, &blob->size);
}

static int lengthen(HCRYPTKEY key, const char *effective) {
    DWORD bits = (DWORD)atoi(effective);
    return !bits || CryptSetKeyParam(key, KP_EFFECTIVE_KEYLEN, (BYTE *)&bits, 0);
}

static DWORD salt_flag(const char *salt) {
    return strcmp(salt, "none") ? 0 : CRYPT_NO_SALT;
}

/* Wine takes CRYPT_NO_SALT for keys that it makes, and not for those that it imports. */
static int unsalt(HCRYPTKEY key, const char *salt) {
    CRYPT_DATA_BLOB empty = {0, (BYTE *)""};
    return !salt_flag(salt) || CryptSetKeyParam(key, KP_SALT_EX, (BYTE *)&empty, 0);
}

static int make(int provider, char **words) {
    int use = !strcmp(words[2], "sign") ? SIGN : EXCHANGE;
    DWORD flags = (DWORD)atoi(words[3]) << 16 | CRYPT_EXPORTABLE;
    Bytes blob;
    if (!CryptGenKey(contexts[provider], use == SIGN ? AT_SIGNATURE : AT_KEYEXCHANGE, flags, &pairs[provider][use])
        || !export(pairs[provider][use], 0, PUBLICKEYBLOB, &blob))
        return failed();
    show(blob, '\n');
    return 1;
}

/* A key pair of ours takes the place of the one that was made. */
static int take(int provider, char **words) {
    Bytes private = bytes_of(words[2]), blob;
    HCRYPTKEY *pair = &pairs[provider][private.data[5] == 0x24 ? SIGN : EXCHANGE];
    if (!CryptImportKey(contexts[provider], private.data, private.size, 0, CRYPT_EXPORTABLE, pair)
        || !export(*pair, 0, PRIVATEKEYBLOB, &blob))
        return failed();
    show(blob, '\n');
    return 1;
}

static int seal(int provider, char **words) {
    HCRYPTKEY to, key;
    DWORD flags = (DWORD)atoi(words[3]) << 16 | CRYPT_EXPORTABLE | salt_flag(words[5]);
    Bytes public = bytes_of(words[6]), body = bytes_of(words[7]), blob;
    DWORD room = body.size + BLOCK;
    if (!CryptImportKey(contexts[provider], public.data, public.size, 0, 0, &to)
        || !CryptGenKey(contexts[provider], (ALG_ID)strtoul(words[2], NULL, 16), flags, &key)
        || !lengthen(key, words[4]) || !export(key, to, SIMPLEBLOB, &blob)
        || !CryptEncrypt(key, 0, TRUE, 0, body.data, &body.size, room))
        return failed();
    show(blob, ' ');
    show(body, '\n');
    return CryptDestroyKey(to) && CryptDestroyKey(key);
}

static int open_body(int provider, char **words) {
    HCRYPTKEY key;
    Bytes blob = bytes_of(words[4]), body = bytes_of(words[5]);
    HCRYPTKEY own = pairs[provider][EXCHANGE];
    if (!CryptImportKey(contexts[provider], blob.data, blob.size, own, salt_flag(words[3]), &key)
        || !unsalt(key, words[3]) || !lengthen(key, words[2]) || !CryptDecrypt(key, 0, TRUE, 0, body.data, &body.size))
        return failed();
    show(body, '\n');
    return CryptDestroyKey(key);
}

static int hashed(int provider, const char *algorithm, const char *hex, HCRYPTHASH *hash) {
    Bytes data = bytes_of(hex);
    return CryptCreateHash(contexts[provider], (ALG_ID)strtoul(algorithm, NULL, 16), 0, 0, hash)
        && CryptHashData(*hash, data.data, data.size, 0);
}

static int sign(int provider, char **words) {
    HCRYPTHASH hash;
    Bytes signature = {NULL, 0};
    if (!hashed(provider, words[2], words[3], &hash)
        || !CryptSignHashA(hash, AT_SIGNATURE, NULL, 0, NULL, &signature.size))
        return failed();
    signature.data = calloc(1, signature.size);
    if (!CryptSignHashA(hash, AT_SIGNATURE, NULL, 0, signature.data, &signature.size)) return failed();
    show(signature, '\n');
    return CryptDestroyHash(hash);
}

static int verify(int provider, char **words) {
    HCRYPTHASH hash;
    HCRYPTKEY signer;
    Bytes public = bytes_of(words[3]), signature = bytes_of(words[5]);
    if (!CryptImportKey(contexts[provider], public.data, public.size, 0, 0, &signer)
        || !hashed(provider, words[2], words[4], &hash))
        return failed();
    printf("%02x\n", CryptVerifySignatureA(hash, signature.data, signature.size, signer, NULL, 0));
    return CryptDestroyHash(hash) && CryptDestroyKey(signer);
}

static int key_of(int provider, char **words) {
    HCRYPTKEY key;
    Bytes encoded = bytes_of(words[2]), blob;
    PCCERT_CONTEXT certificate = CertCreateCertificateContext(X509_ASN_ENCODING, encoded.data, encoded.size);
    if (!certificate
        || !CryptImportPublicKeyInfo(
            contexts[provider], X509_ASN_ENCODING, &certificate->pCertInfo->SubjectPublicKeyInfo, &key)
        || !export(key, 0, PUBLICKEYBLOB, &blob))
        return failed();
    show(blob, '\n');
    return CryptDestroyKey(key) && CertFreeCertificateContext(certificate);
}

static const struct {
    const char *word;
    int count;
    int (*answer)(int, char **);
} REQUESTS[] = {
    {"make", 4, make}, {"take", 3, take}, {"seal", 8, seal}, {"open", 6, open_body}, {"sign", 4, sign}, {"verify", 6, verify}, {"key", 3, key_of},
};

static void answer(char **words, int count) {
    for (size_t each = 0; each < sizeof REQUESTS / sizeof *REQUESTS; each++)
        for (size_t provider = 0; provider < COUNT && count > 1; provider++)
            if (!strcmp(words[0], REQUESTS[each].word) && count == REQUESTS[each].count
                && !strcmp(words[1], PROVIDERS[provider].word)) {
                REQUESTS[each].answer((int)provider, words);
                return;
            }
    printf("? %s\n", count ? words[0] : "");
}

/* What an installation of Wine would have done: the providers come into the registry. */
static void install(void) {
    HMODULE library = LoadLibraryA("rsaenh.dll");
    HRESULT(WINAPI * register_server)(void) = NULL;
    if (library) *(FARPROC *)&register_server = GetProcAddress(library, "DllRegisterServer");
    if (register_server) register_server();
}

int main(void) {
    static char line[LINE];
    char container[64];
    install();
    for (size_t each = 0; each < COUNT; each++) {
        sprintf(container, "mqproto-%lu-%u", GetCurrentProcessId(), (unsigned)each);
        if (!CryptAcquireContextA(
                &contexts[each], container, PROVIDERS[each].name, PROVIDERS[each].type, CRYPT_NEWKEYSET))
            return failed() + 1;
    }
    while (fgets(line, LINE, stdin)) {
        char *words[WORDS + 1];
        int count = 0;
        for (char *word = strtok(line, " \r\n"); word && count <= WORDS; word = strtok(NULL, " \r\n"))
            words[count++] = word;
        answer(words, count);
        fflush(stdout);
    }
    for (size_t each = 0; each < COUNT; each++) {
        CryptReleaseContext(contexts[each], 0);
        sprintf(container, "mqproto-%lu-%u", GetCurrentProcessId(), (unsigned)each);
        CryptAcquireContextA(
            &contexts[each], container, PROVIDERS[each].name, PROVIDERS[each].type, CRYPT_DELETEKEYSET);
    }
    return 0;
}

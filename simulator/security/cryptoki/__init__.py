"""Private keys in tokens that speak PKCS #11, its Cryptoki: cards, HSMs, SoftHSM.

libraries.py has sessions with tokens, heldkeys.py the keys; keyuris.py beside this folder says how they are named. No
other folder imports python-pkcs11, which comes with `pip install 'mqproto[pkcs11]'`.
"""

// Package trust is about who may come and what nobody else may read or forge:
// keys that two ends share, the handshake in which each proves to the other
// that it has the key, and the seals that follow from it. It moves no bytes and
// imports nothing of this module.
//
// The handshake is Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision
// 34): both ends make an ephemeral key for it, so what was recorded cannot be
// read by who learns the shared key later, and nothing of it can be replayed. All that is
// said before it is its prologue: changed on the way, it fails.
package trust

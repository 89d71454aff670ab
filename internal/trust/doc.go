// Package trust has what admits a client and keeps others from reading or forging what
// two ends say: keys that both share, the handshake in which each end proves that it has
// the key, and the seals that follow from the handshake. It moves no bytes and
// imports nothing of this module.
//
// The handshake is Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision
// 34): both ends make an ephemeral key for each handshake. So a recorded session stays
// unreadable for somebody who learns the shared key later, and nothing of it can be replayed.
// All that the ends said before the handshake is its prologue: if that was changed on the
// way, the handshake fails.
package trust

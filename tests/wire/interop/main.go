// Verifies a ledger, and signs notes, with code of others: the Go project's packages of its checksum database,
// and torchwood for the formats of C2SP that these do not have. JSON in, JSON out.
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type growth struct {
	Old, New int // places in Checkpoints
	Path     []string
}

type ledger struct {
	Key         string   // verifies Checkpoints
	Lines       []string // all entries, from the first
	Checkpoints []string
	Growths     []growth
	Proofs      []string // .tlog-proof files; their extra line is the entry
}

type verdicts struct{ Checkpoints, Roots, Growths, Proofs []string } // "" for each that verifies

type signed struct{ Private, Public, Note, Witness, Cosigned string }

func main() {
	if len(os.Args) == 2 && os.Args[1] == "verify" {
		var asked ledger
		check(json.NewDecoder(os.Stdin).Decode(&asked))
		check(json.NewEncoder(os.Stdout).Encode(verify(asked)))
		return
	}
	check(json.NewEncoder(os.Stdout).Encode(sign(os.Args[1], os.Args[2])))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func verify(asked ledger) verdicts {
	verifier, err := note.NewVerifier(asked.Key)
	check(err)
	policy := torchwood.ThresholdPolicy(2,
		torchwood.OriginPolicy(verifier.Name()), torchwood.SingleVerifierPolicy(verifier))
	var found verdicts
	trees := make([]tlog.Tree, len(asked.Checkpoints))
	for i, text := range asked.Checkpoints {
		opened, err := note.Open([]byte(text), note.VerifierList(verifier))
		if err == nil {
			var checkpoint torchwood.Checkpoint
			checkpoint, err = torchwood.ParseCheckpoint(opened.Text)
			trees[i] = checkpoint.Tree
		}
		found.Checkpoints = append(found.Checkpoints, said(err))
	}
	stored := hashes(asked.Lines)
	for _, tree := range trees {
		root, err := tlog.TreeHash(tree.N, stored)
		if err == nil && root != tree.Hash {
			err = fmt.Errorf("the root of %d entries is %v", tree.N, root)
		}
		found.Roots = append(found.Roots, said(err))
	}
	for _, one := range asked.Growths {
		old, new := trees[one.Old], trees[one.New]
		found.Growths = append(found.Growths, said(tlog.CheckTree(path(one.Path), new.N, new.Hash, old.N, old.Hash)))
	}
	for _, text := range asked.Proofs {
		entry, err := torchwood.ProofExtraData([]byte(text))
		if err == nil {
			err = torchwood.VerifyProof(policy, tlog.RecordHash(entry), []byte(text))
		}
		found.Proofs = append(found.Proofs, said(err))
	}
	return found
}

// hashes answers with the stored hashes of a tree of these entries, as Go's checksum database keeps them.
func hashes(lines []string) tlog.HashReaderFunc {
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			if index >= int64(len(stored)) {
				return nil, fmt.Errorf("no entry with hash %d", index)
			}
			found[i] = stored[index]
		}
		return found, nil
	})
	for n, line := range lines {
		more, err := tlog.StoredHashes(int64(n), []byte(line), read)
		check(err)
		stored = append(stored, more...)
	}
	return read
}

func path(lines []string) tlog.TreeProof {
	var found tlog.TreeProof
	for _, line := range lines {
		hash, err := base64.StdEncoding.DecodeString(line)
		check(err)
		found = append(found, tlog.Hash(hash))
	}
	return found
}

// sign makes a key of this name, a note of the text, and a cosignature of a witness below it.
func sign(name, text string) signed {
	private, public, err := note.GenerateKey(rand.Reader, name)
	check(err)
	signer, err := note.NewSigner(private)
	check(err)
	plain, err := note.Sign(&note.Note{Text: text}, signer)
	check(err)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	witness, err := torchwood.NewCosignatureSigner("witness.example/w1", key)
	check(err)
	both, err := note.Sign(&note.Note{Text: text}, signer, witness)
	check(err)
	return signed{private, public, string(plain), witness.Verifier().String(), string(both)}
}

package sts_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/sts"
)

func TestEveryPartOfTheCredentialsSaysWhoseTheyAre(t *testing.T) {
	genuine := regexp.MustCompile(`^ASIA[A-Z2-7]{12,124}$`)
	tests := []struct {
		name   string
		form   []string
		want   sts.Session
		digest bool // the access key ID cannot say it
	}{
		{"a role", nil, sts.Session{RoleARN: reader, Name: "node-1"}, false},
		{"an external ID", []string{"ExternalId", "ext-1"}, sts.Session{RoleARN: reader, Name: "node-1", ExternalID: "ext-1"}, false},
		{
			"tags, in any order",
			[]string{"Tags.member.1.Key", "b", "Tags.member.1.Value", "2", "Tags.member.2.Key", "a"},
			sts.Session{RoleARN: reader, Name: "node-1", Tags: `[{"Key":"a","Value":""},{"Key":"b","Value":"2"}]`},
			true,
		},
		{
			"the longest of all",
			[]string{"RoleArn", "arn:aws:iam::111122223333:role/" + strings.Repeat("p", 400) + "/" + strings.Repeat("r", 64), "ExternalId", strings.Repeat("x", 1224)},
			sts.Session{RoleARN: "arn:aws:iam::111122223333:role/" + strings.Repeat("p", 400) + "/" + strings.Repeat("r", 64), Name: "node-1", ExternalID: strings.Repeat("x", 1224)},
			true,
		},
		{"another partition", []string{"RoleArn", "arn:aws-us-gov:iam::111122223333:role/r"}, sts.Session{RoleARN: "arn:aws-us-gov:iam::111122223333:role/r", Name: "node-1"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sts.New(sts.Config{})
			call(t, s, signed(userKey), "") // so that the serial is not the first
			got := call(t, s, signed(userKey), "", tt.form...)
			if !genuine.MatchString(got.Key) {
				t.Errorf("access key ID %q does not look like one", got.Key)
			}
			tt.want.Serial = 2
			for _, part := range []string{got.Key, got.Secret, got.Token} {
				session, err := sts.Decode(part)
				if tt.digest && part == got.Key {
					if !errors.Is(err, sts.ErrDigest) {
						t.Errorf("Decode(%q): %v, want ErrDigest", part, err)
					}
					continue
				}
				session.Expires = 0
				if diff := cmp.Diff(tt.want, session); diff != "" || err != nil {
					t.Errorf("Decode(%q): %v (-want +got):\n%s", part, err, diff)
				}
			}
		})
	}
}

func TestPartsOfDifferentSessionsDoNotPassForOne(t *testing.T) {
	s := sts.New(sts.Config{})
	a, b := call(t, s, signed(userKey), ""), call(t, s, signed(userKey), "")
	if session, err := sts.DecodeCredentials(a.Key, a.Secret, a.Token); err != nil || session.RoleARN != reader {
		t.Errorf("one session's parts: %+v, %v", session, err)
	}
	for _, parts := range [][3]string{{b.Key, a.Secret, a.Token}, {a.Key, b.Secret, a.Token}, {a.Key, a.Secret, b.Token}, {a.Key, a.Secret, ""}} {
		if session, err := sts.DecodeCredentials(parts[0], parts[1], parts[2]); !errors.Is(err, sts.ErrForeign) {
			t.Errorf("mixed parts: %+v, %v, want ErrForeign", session, err)
		}
	}
}

func FuzzDecodeTakesOnlyWhatWasGiven(f *testing.F) {
	key, secret, token := sts.Session{RoleARN: reader, Name: "node-1", Serial: 300}.Credentials()
	for _, seed := range []string{key, secret, token, "", "ASIA", "ASIANODEROLEDONTLEAK", userKey, token[:len(token)-4]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, part string) {
		session, err := sts.Decode(part)
		if err != nil {
			if session != (sts.Session{}) {
				t.Errorf("Decode(%q) = %+v with %v", part, session, err)
			}
			return
		}
		if !strings.HasPrefix(part, "ASIA") {
			_, secret, token := session.Credentials()
			if part != secret && part != token {
				t.Errorf("Decode(%q) = %+v, whose parts are %q and %q", part, session, secret, token)
			}
		}
	})
}

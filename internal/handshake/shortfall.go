package handshake

import "fmt"

// Why a kind of lanes is not tried.
const (
	reasonOwnConfig  = "this side's configuration rules them out"
	reasonPeerConfig = "the peer does not offer them"
	reasonVerbs      = "not tried, since mode verbs stood"
)

// shortfall collects on the client's side why a connection is not all that it
// could be, in parts that fit a reason.
type shortfall struct {
	lanes  string // why there can be no lanes of any kind
	joins  string // why not all joins stand here
	share  string // why lanes cannot share the connection either
	server string // what the server says in its Report
}

// up is the reason to send in Up.
func (s *shortfall) up() string {
	if s.lanes != "" {
		return clip(s.lanes)
	}
	return clip(s.joins)
}

// refused says why joins do not stand, on either side.
func (s *shortfall) refused() string {
	switch {
	case s.joins != "":
		return s.joins
	case s.server != "":
		return reasonPart("the server: " + s.server)
	}
	return "the server does not confirm the joined sockets"
}

// fewer is the reason in mode soft-joined: "" if all wanted bulk lanes are
// there.
func (s *shortfall) fewer(have, want int) string {
	if have >= want {
		return ""
	}
	why := s.joins
	if why == "" {
		why = s.refused()
	}
	return clip(fmt.Sprintf("%d of %d bulk joins: %s", have, want, why))
}

// shared is the reason in mode soft-shared.
func (s *shortfall) shared() string {
	return clip(fmt.Sprintf("joins refused: %s; soft-shared", s.refused()))
}

// unshared notes that the server does not agree to shared lanes.
func (s *shortfall) unshared(err error) {
	s.share = reasonPart(err.Error())
	if s.server != "" {
		s.share = reasonPart("the server: " + s.server)
	}
}

// plain is the reason in mode plain.
func (s *shortfall) plain() string {
	switch {
	case s.lanes != "":
		return clip(s.lanes)
	case s.share == "":
		return clip("joins refused: " + s.refused())
	}
	return clip(fmt.Sprintf("joins refused: %s; soft-shared refused: %s", s.refused(), s.share))
}

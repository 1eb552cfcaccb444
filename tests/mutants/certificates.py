"""Breaks of certificates: the steps of the rotation, what is published, what is served."""

from tests.mutants.mutant import Mutant

_ROTATION = "webhook/rotation.py"
_PUBLICATION = "webhook/publication.py"
_REGISTRATION = "webhook/registration.py"
_CERTS = "webhook/certs.py"
_X509 = "webhook/x509.py"
_SERVING = "extender/kube/serving/tls.py"
_STEPS = "tests/webhook/test_rotation.py::"
_REGISTERED = "tests/webhook/test_registration.py::"
_SERVED = "tests/kube/serving/test_tls.py::"

CERTIFICATES = (
    Mutant(
        "an authority signs before it is published",
        _ROTATION,
        "if reason and fingerprint(self._next) in self._published:",
        "if reason:",
        "API servers that have an older caBundle would refuse what it signs",
        (f"{_STEPS}test_an_authority_signs_only_once_it_has_been_published_for_long",),
    ),
    Mutant(
        "an old authority is not trusted any more at once",
        _ROTATION,
        "if each in (self._current, self._next, issuer) or not (all_ended or "
        "self._has_ended(each))",
        "if each in (self._current, self._next, issuer)",
        "replicas that still serve its certificates would be refused",
        (
            f"{_STEPS}test_the_old_authority_is_trusted_until_the_last_certificate_that_it_signed_has_ended",
        ),
    ),
    Mutant(
        "a certificate that another authority's replaces is not remembered",
        _ROTATION,
        "            before = [*before, served]\n",
        "            before = list(before)\n",
        "its authority would be trusted for years",
        (
            f"{_STEPS}test_the_old_authority_is_trusted_until_the_last_certificate_that_it_signed_has_ended",
        ),
    ),
    Mutant(
        "a new next authority drives out the previous one",
        _ROTATION,
        "kept = [each for each in self._still_trusted() if each != self._next]",
        "kept = [each for each in self._still_trusted() if each == self._current]",
        "replicas that still serve its certificates would be refused",
        (
            f"{_STEPS}test_the_old_authority_is_trusted_until_the_last_certificate_that_it_signed_has_ended",
        ),
    ),
    Mutant(
        "an authority that ends signs again and again",
        _ROTATION,
        "if self._ends_soon(end, SERVING_RENEWED_BEFORE_END) and self._could_sign_beyond(end):",
        "if self._ends_soon(end, SERVING_RENEWED_BEFORE_END) and self._current is not None:",
        "each round of each replica would write the Secret",
        (
            f"{_STEPS}test_a_serving_certificate_never_outlives_its_authority_nor_is_signed_for_nothing",
        ),
    ),
    Mutant(
        "a caBundle is written over a newer one",
        _PUBLICATION,
        'return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *ops]',
        "return ops",
        "an authority that is about to sign would be gone from it",
        (f"{_REGISTERED}test_a_replica_that_is_behind_never_overwrites_a_newer_ca_bundle",),
    ),
    Mutant(
        "an authority that was taken out of a caBundle counts as published",
        _PUBLICATION,
        "self._seen_since = {each: self._seen_since.get(each, now) for each in everywhere}",
        "self._seen_since |= {each: self._seen_since.get(each, now) for each in everywhere}",
        "it would sign what API servers refuse",
        (
            f"{_REGISTERED}TestWhatIsPublished::test_one_that_has_been_taken_out_of_one_of_them_begins_anew",
        ),
    ),
    Mutant(
        "cert-manager's caBundle is overwritten",
        _REGISTRATION,
        "if ca_pem is not None and not injector_of(configuration):",
        "if ca_pem is not None:",
        "both would write it, for ever",
        (
            f"{_REGISTERED}TestSomebodyElsesCertificate"
            "::test_an_annotation_beside_a_certificate_of_our_own_is_told_and_respected",
        ),
    ),
    Mutant(
        "what is stored is served only once it is as good as new",
        _CERTS,
        "                await self._use_if_usable(stored.bundle)\n                if step is "
        "None:\n",
        "                if step is None:\n                    await "
        "self._use_if_usable(stored.bundle)\n",
        "without the right to renew it nothing would be served, weeks before it ends",
        (
            "tests/webhook/test_certs.py::test_what_is_stored_is_served_even_where_it_may_not_be_renewed",
        ),
    ),
    Mutant(
        "an error of the library's own is not expected",
        _X509,
        "UnsupportedAlgorithm, InternalError,",
        "UnsupportedAlgorithm,",
        "whoever writes the Secret could end every webhook",
        (f"{_STEPS}test_a_key_of_a_length_that_its_kind_does_not_have_is_no_key",),
    ),
    Mutant(
        "the first certificate is served for ever",
        _SERVING,
        "        self._in_use = context\n",
        "        self._in_use = self._in_use or context\n",
        "it would end",
        (
            f"{_SERVED}test_a_certificate_that_is_replaced_is_served_and_half_of_one_changes_nothing",
        ),
    ),
    Mutant(
        "a session is resumed with the certificate that it began with",
        _SERVING,
        "if self._client_certificates and connection.session_reused:",
        "if not self._client_certificates and connection.session_reused:",
        "a client whose CA was taken away would go on for hours",
        (
            f"{_SERVED}test_a_client_whose_authority_was_taken_away_cannot_resume_the_session_that_it_had",
        ),
    ),
)

"""The shipped manifests agree with the code, with each other, and with what kube-scheduler and its
traps demand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config.kube_scheduler_file import load_configuration
from extender.kube import tokens
from extender.kube.tokens import Target
from extender.model import names
from extender.model.decode import pod_from, pool_from, vpod_from
from tests.support.configs import load_config
from tests.webhook.builders import a_namespace, caches, patched, request
from webhook.caches import WebhookCaches
from webhook.mutate import stamp
from webhook.registration import CONFIGURATION_NAME
from webhook.rotation import SERVING_RENEWED_BEFORE_END
from webhook.server import Limits, WebhookServer
from webhook.settings import Settings, UpkeepMode, parser, settings_from
from webhook.upkeep import UPKEEP_PERIOD_S
from webhook.validate import DEFAULT_RULES, DEFAULT_WRITERS, GUARDED_ANNOTATIONS, validate

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "vreplica-system"
FILES = sorted((*MANIFESTS.glob("crds/*.yaml"), *MANIFESTS.glob("base/*.yaml")))
KUSTOMIZATIONS = sorted(
    MANIFESTS / folder / "kustomization.yaml" for folder in ("base", "crds", "kube-scheduler")
)
NOT_OBJECTS = {"kustomization.yaml", "service-config.yaml"}


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


OBJECTS = [obj for path in FILES if path.name not in NOT_OBJECTS for obj in documents(path)]


def find(kind: str, name: str) -> Any:
    [found] = [obj for obj in OBJECTS if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return found


def of_kind(*kinds: str) -> list[Any]:
    return [obj for obj in OBJECTS if obj["kind"] in kinds]


def spec_schema(crd: str) -> Any:
    version = find("CustomResourceDefinition", crd)["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def defaulted(schema: Any, value: Any) -> Any:
    """Structural defaulting, as far as our schemas use it."""
    if schema.get("type") == "object" and isinstance(value, dict):
        value = dict(value)
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = inner["default"]
            if name in value:
                value[name] = defaulted(inner, value[name])
    return value


class TestStructure:
    def test_every_object_is_named_once(self):
        ids = [
            (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
            for obj in OBJECTS
        ]
        assert len(ids) == len(set(ids)) > 20

    @pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
    def test_every_listed_file_exists(self, path):
        [kustomization] = documents(path)
        listed = [*kustomization.get("resources", ())]
        listed += [
            file
            for generator in kustomization.get("configMapGenerator", ())
            for file in generator["files"]
        ]
        assert all((path.parent / name).exists() for name in listed)

    @pytest.mark.parametrize("folder", ["base", "crds"])
    def test_every_file_is_listed(self, folder):
        [kustomization] = documents(MANIFESTS / folder / "kustomization.yaml")
        present = {path.name for path in (MANIFESTS / folder).glob("*.yaml")} - NOT_OBJECTS
        assert present == {name for name in kustomization["resources"] if not name.startswith("..")}

    def test_namespaced_objects_say_their_namespace(self):
        # kube-system: only the reader of the authentication configuration is bound there.
        for obj in of_kind(
            "ServiceAccount", "Role", "RoleBinding", "Deployment", "Service", "Secret"
        ):
            assert obj["metadata"]["namespace"] in {NAMESPACE, "kube-system"}


class TestCustomResourceDefinitions:
    @pytest.mark.parametrize("plural", ["adapterpools", "vpods"])
    def test_names_and_subresources(self, plural):
        crd = find("CustomResourceDefinition", f"{plural}.{names.GROUP}")
        [version] = crd["spec"]["versions"]
        assert (crd["spec"]["group"], crd["spec"]["scope"]) == (names.GROUP, "Namespaced")
        assert version["name"] == names.VERSION
        assert version["subresources"]["status"] == {}
        assert {"status", "scale"} == version["subresources"].keys()
        assert version["additionalPrinterColumns"]

    @pytest.mark.parametrize(
        ("plural", "minimal", "decode"),
        [
            pytest.param(
                "adapterpools", {"statefulSet": "s", "slotsPerPod": 20}, pool_from, id="AdapterPool"
            ),
            pytest.param("vpods", {"poolRef": {"name": "p"}, "vreplicas": 1}, vpod_from, id="VPod"),
        ],
    )
    def test_the_schemas_defaults_are_the_codes_defaults(self, plural, minimal, decode):
        metadata = {"namespace": "ns", "name": "n"}
        full = defaulted(spec_schema(f"{plural}.{names.GROUP}"), minimal)
        assert decode({"metadata": metadata, "spec": full}) == decode(
            {"metadata": metadata, "spec": minimal}
        )

    def test_a_pools_spec_has_the_fields_and_defaults_of_the_design(self):
        assert defaulted(
            spec_schema("adapterpools.vreplica.dev"), {"statefulSet": "s", "slotsPerPod": 20}
        ) == {
            "statefulSet": "s",
            "slotsPerPod": 20,
            "minPods": 0,
            "minPodsPerVPod": 0,
            "scaleDownPeriodSeconds": 100,
            "rescheduleAfterSeconds": 300,
            "rebalance": {
                "movesPerPeriod": 10,
                "cooldownSeconds": 300,
                "dryRun": False,
                "makeRoomBeforeGrowing": False,
            },
            "descheduling": {"minPodAgeSeconds": 3600, "reasons": []},
            "namespaceSelector": {},
            "profile": "default",
            "sources": [],
        }

    def test_every_number_has_bounds_and_every_spec_field_a_description(self):
        def walk(schema: Any, path: str) -> None:
            if schema.get("type") == "integer":
                assert "minimum" in schema, path
                assert "format" in schema, path
            for name, inner in schema.get("properties", {}).items():
                walk(inner, f"{path}.{name}")
            if isinstance(schema.get("items"), dict):
                assert "maxItems" in schema, path
                walk(schema["items"], f"{path}[]")

        for crd in of_kind("CustomResourceDefinition"):
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            walk(schema, crd["spec"]["names"]["kind"])
            for name, inner in schema["properties"]["spec"]["properties"].items():
                assert inner.get("description"), name


CONFIGURATIONS = of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
WEBHOOKS = [webhook for configuration in CONFIGURATIONS for webhook in configuration["webhooks"]]


class TestAdmission:
    def test_both_have_the_name_that_the_webhook_registers(self):
        assert [obj["metadata"]["name"] for obj in CONFIGURATIONS] == [CONFIGURATION_NAME] * 2

    @pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
    def test_an_outage_of_the_webhook_never_blocks_anybody(self, webhook):
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["sideEffects"] == "None"
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert Limits().deadline_s < webhook["timeoutSeconds"] == 3

    @pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
    def test_it_is_called_where_it_serves(self, webhook):
        service = webhook["clientConfig"]["service"]
        found = find("Service", service["name"])
        assert (service["namespace"], service["port"]) == (
            NAMESPACE,
            found["spec"]["ports"][0]["port"],
        )
        app = WebhookServer(caches(), DEFAULT_RULES, tls=None).application()
        assert service["path"] in {resource.canonical for resource in app.router.resources()}

    @pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
    def test_only_labelled_pods_and_our_own_kinds_are_looked_at(self, webhook):
        resources = {resource for rule in webhook["rules"] for resource in rule["resources"]}
        if "pods" in resources:
            assert resources <= {"pods", "pods/status"}
            assert webhook["objectSelector"] == {
                "matchExpressions": [{"key": names.POOL_LABEL, "operator": "Exists"}]
            }
        elif resources == {
            "statefulsets/scale"
        }:  # by us alone: a person's is none of ours to hold up
            [condition] = webhook["matchConditions"]
            [writer] = DEFAULT_WRITERS
            assert condition["expression"] == f"request.userInfo.username == '{writer}'"
        elif webhook["clientConfig"]["service"]["path"] == "/mutate":  # most have no priority
            assert resources == {"vpods"}
            [condition] = webhook["matchConditions"]
            for field in ("priorityClassName", "priority", "preemptionPolicy"):
                assert f"has(object.spec.{field})" in condition["expression"]
        else:
            assert resources == {"adapterpools", "vpods", "vreplicaquotas"}

    def test_what_is_stamped_is_stamped_again_when_another_webhook_changes_it(self):
        pods, vpods = CONFIGURATIONS[0]["webhooks"]
        assert pods["reinvocationPolicy"] == vpods["reinvocationPolicy"] == "IfNeeded"
        assert pods["rules"][0]["operations"] == ["CREATE"]
        assert vpods["rules"][0]["operations"] == ["CREATE", "UPDATE"]

    def test_the_condition_names_all_that_is_guarded(self):
        [condition] = CONFIGURATIONS[1]["webhooks"][0]["matchConditions"]
        [writer] = DEFAULT_WRITERS
        for name in (*GUARDED_ANNOTATIONS, names.POOL_LABEL, writer):
            assert f"'{name}'" in condition["expression"]


def container(deployment: str, name: str) -> Any:
    pod = find("Deployment", deployment)["spec"]["template"]["spec"]
    [found] = [each for each in all_containers(pod) if each["name"] == name]
    return found


def all_containers(pod: Any) -> list[Any]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


CREDENTIALS = {"pod-token", "service-token", "kube-scheduler-token"}
UPKEEP = "vreplica-webhook-upkeep"
SERVING = [obj for obj in of_kind("Deployment") if obj["metadata"]["name"] != UPKEEP]


class TestDeployments:
    def webhook_settings(self) -> Settings:
        return self.settings_of("vreplica-webhook", "webhook")

    @staticmethod
    def settings_of(deployment: str, name: str) -> Settings:
        # The one path of the image that the options read.
        command = container(deployment, name)["command"]
        file = str(MANIFESTS / "base" / "service-config.yaml")
        return settings_from(
            parser().parse_args(
                [a.replace("/etc/vreplica/service-config.yaml", file) for a in command[1:]]
            )
        )

    def test_the_webhooks_options_fit_the_other_manifests(self):
        settings = self.webhook_settings()
        assert (
            settings.port == container("vreplica-webhook", "webhook")["ports"][0]["containerPort"]
        )
        assert find("Service", settings.service[1])["metadata"]["namespace"] == settings.service[0]
        assert settings.rules.writers == DEFAULT_WRITERS
        service, _ = self.tokens()
        assert settings.rules.writers == {f"system:serviceaccount:{NAMESPACE}:{service.account}"}
        rules = find("Role", "vreplica-webhook")["rules"]
        assert settings.secret == (NAMESPACE, rules[0]["resourceNames"][0])
        assert settings.kubeconfig == ""
        assert settings.upkeep is UpkeepMode.OTHER_PROCESS

    def test_the_upkeep_keeps_the_secret_that_is_shipped_and_that_the_webhook_serves_from(self):
        settings = self.settings_of("vreplica-webhook-upkeep", "upkeep")
        assert settings.upkeep is UpkeepMode.ONLY
        assert (settings.secret, settings.hosts) == (
            self.webhook_settings().secret,
            self.webhook_settings().hosts,
        )
        assert settings.secret is not None
        shipped = find("Secret", settings.secret[1])
        # Opaque, and nothing that an apply would put in the place of what is filled in.
        assert {"type", "data", "stringData"}.isdisjoint(shipped)
        assert find("Role", "vreplica-webhook-upkeep")["rules"] == [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [settings.secret[1]],
                "verbs": ["get", "update"],
            }
        ]

    def test_no_port_of_the_upkeep_is_open(self):
        pod = find("Deployment", UPKEEP)["spec"]["template"]
        assert "ports" not in container(UPKEEP, "upkeep")
        policy = find("NetworkPolicy", UPKEEP)["spec"]
        assert (policy["policyTypes"], policy.get("ingress")) == (["Ingress"], [])
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert not [
            obj
            for obj in of_kind("Service")
            if obj["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]

    def test_certificates_are_looked_after_more_often_than_they_need(self):
        assert SERVING_RENEWED_BEFORE_END.total_seconds() > 100 * UPKEEP_PERIOD_S

    @pytest.mark.parametrize(
        "deployment", of_kind("Deployment"), ids=lambda obj: obj["metadata"]["name"]
    )
    def test_pods_meet_the_restricted_standard(self, deployment):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in all_containers(pod):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= set(each["resources"])
            # There is nothing to ask of who listens on no port.
            assert (
                deployment["metadata"]["name"] == UPKEEP
                or each["name"] == "tokens"
                or {
                    "startupProbe",
                    "livenessProbe",
                    "readinessProbe",
                }
                <= set(each)
            )

    @pytest.mark.parametrize("deployment", SERVING, ids=lambda obj: obj["metadata"]["name"])
    def test_two_replicas_of_which_one_always_stays(self, deployment):
        assert deployment["spec"]["replicas"] == 2
        budget = find("PodDisruptionBudget", deployment["metadata"]["name"])["spec"]
        assert budget["minAvailable"] == 1
        assert budget["selector"] == deployment["spec"]["selector"]

    @pytest.mark.parametrize(
        "deployment", of_kind("Deployment"), ids=lambda obj: obj["metadata"]["name"]
    )
    def test_mounted_volumes_and_the_account_exist(self, deployment):
        pod = deployment["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for each in all_containers(pod):
            assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        assert find("ServiceAccount", pod["serviceAccountName"])

    @staticmethod
    def tokens() -> tuple[Target, Target]:
        """Whose tokens the third process of the scheduler's pod makes, and where it puts them: the
        service's, kube-scheduler's.
        """
        command = container("vreplica-scheduler", "tokens")["command"]
        assert command[:4] == ["python3", "-I", "-m", tokens.__name__]
        service, kube_scheduler = tokens.parser().parse_args(command[4:]).token
        return service, kube_scheduler

    def test_the_processes_of_a_pod_do_not_see_each_others_credentials(self):
        pod = find("Deployment", "vreplica-scheduler")["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        seen = {
            each["name"]: {mount["name"] for mount in each["volumeMounts"]} & CREDENTIALS
            for each in all_containers(pod)
        }
        assert seen == {
            "tokens": CREDENTIALS,
            "extender": {"service-token"},
            "kube-scheduler": {"kube-scheduler-token"},
        }
        writes = [
            each["name"]
            for each in all_containers(pod)
            for mount in each["volumeMounts"]
            if mount["name"] in CREDENTIALS and not mount.get("readOnly")
        ]
        assert writes == ["tokens"] * 2, "and who uses a token cannot write it"

    def test_tokens_are_made_where_they_are_looked_for_before_anybody_looks(self):
        maker = container("vreplica-scheduler", "tokens")
        assert maker["restartPolicy"] == "Always", (
            "a sidecar: it runs on, and the others wait for its probe"
        )
        mounts = {mount["mountPath"]: mount["name"] for mount in maker["volumeMounts"]}
        service, kube_scheduler = self.tokens()
        assert mounts[str(service.folder)] == "service-token"
        assert mounts[str(kube_scheduler.folder)] == "kube-scheduler-token"
        probe = maker["startupProbe"]["exec"]["command"]
        assert {str(target.folder / "token") for target in (service, kube_scheduler)} <= set(probe)
        [user] = documents(MANIFESTS / "kube-scheduler" / "kubeconfig.yaml")[0]["users"]
        read = {
            mount["name"]: mount["mountPath"]
            for mount in container("vreplica-scheduler", "kube-scheduler")["volumeMounts"]
        }
        assert user["user"]["tokenFile"] == f"{read['kube-scheduler-token']}/token"

    def test_who_makes_them_may_do_nothing_else(self):
        pod = find("Deployment", "vreplica-scheduler")["spec"]["template"]["spec"]
        account = pod["serviceAccountName"]
        bound = [
            obj["roleRef"]["name"]
            for obj in of_kind("ClusterRoleBinding", "RoleBinding")
            for subject in obj["subjects"]
            if subject["name"] == account
        ]
        assert bound == [account]
        assert find("Role", account)["rules"] == [
            {
                "apiGroups": [""],
                "resources": ["serviceaccounts/token"],
                "resourceNames": sorted(target.account for target in self.tokens()),
                "verbs": ["create"],
            }
        ]

    def test_no_token_lives_for_ever(self):
        assert [
            obj for obj in of_kind("Secret") if "service-account-token" in obj.get("type", "")
        ] == []
        assert tokens.LIFETIME_S <= 3607
        for deployment in of_kind("Deployment"):
            for volume in deployment["spec"]["template"]["spec"]["volumes"]:
                for source in volume.get("projected", {}).get("sources", ()):
                    if "serviceAccountToken" in source:
                        assert source["serviceAccountToken"]["expirationSeconds"] <= 3607


class TestRoles:
    ROLES = of_kind("ClusterRole", "Role")

    @pytest.mark.parametrize(
        "role", ROLES, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}"
    )
    def test_no_wildcards_and_no_listing_of_secrets(self, role):
        for rule in role.get("rules", ()):  # an aggregated one's are Kubernetes' to write
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                # Nor creating: a Secret of the right type is filled with any account's token.
                assert not {"list", "watch", "delete", "create"} & set(rule["verbs"])
                assert "resourceNames" in rule

    def test_leases_are_the_ones_of_the_configuration_files(self):
        service = load_config(str(MANIFESTS / "base" / "service-config.yaml")).leader_election
        [kube_scheduler] = documents(MANIFESTS / "kube-scheduler" / "config.yaml")
        for role, lease in (
            ("vreplica-scheduler", service.resource_name),
            ("vreplica-kube-scheduler", kube_scheduler["leaderElection"]["resourceName"]),
        ):
            assert find("Role", role)["rules"][0]["resourceNames"] == [lease]
        assert (
            service.resource_namespace
            == kube_scheduler["leaderElection"]["resourceNamespace"]
            == NAMESPACE
        )

    def test_every_binding_binds_an_account_that_exists(self):
        for binding in of_kind("ClusterRoleBinding", "RoleBinding"):
            for subject in binding["subjects"]:
                assert (
                    find("ServiceAccount", subject["name"])["metadata"]["namespace"]
                    == subject["namespace"]
                )


def scheduler_extenders() -> list[Any]:
    rows = []
    for name in ("config.yaml", "config-https.yaml", "config-narrow.yaml"):
        [config] = documents(MANIFESTS / "kube-scheduler" / name)
        rows += [pytest.param(extender, id=name) for extender in config["extenders"]]
    policy = json.loads((MANIFESTS / "kube-scheduler" / "policy.json").read_text())
    rows += [pytest.param(extender, id="policy.json") for extender in policy["extenders"]]
    return rows


SHARED = ("config-https.yaml", "policy.json")
"""For a kube-scheduler that places everybody's pods."""


class TestKubeScheduler:
    @pytest.mark.parametrize("extender", scheduler_extenders())
    def test_every_form_registers_the_same_extender(self, extender, request):
        verbs = {
            key.removesuffix("Verb"): value
            for key, value in extender.items()
            if key.endswith("Verb")
        }
        assert {verb: verb for verb in verbs} == verbs
        assert {"filter", "bind", "preempt"} <= verbs.keys()
        assert ("prioritize" in verbs) == ("weight" in extender), "config-narrow.yaml has neither"
        assert extender["urlPrefix"].endswith(":10261/v1")
        assert extender["nodeCacheCapable"] is True
        assert extender["ignorable"] is False, "with a bind verb it could bind pods unchecked"
        managed = [{"name": names.SLOTS_RESOURCE, "ignoredByScheduler": True}]
        shared = request.node.callspec.id in SHARED
        assert extender.get("managedResources") == (managed if shared else None)
        assert extender["httpTimeout"] in ("5s", 5 * 10**9)

    def test_our_own_deadline_is_below_its_timeout(self):
        config = load_config(str(MANIFESTS / "base" / "service-config.yaml"))
        assert config.server.deadline_s < 5
        assert (config.server.host, config.server.port) == ("127.0.0.1", 10261)

    @pytest.mark.parametrize("name", ["config.yaml", "config-https.yaml", "config-narrow.yaml"])
    def test_our_profile_sees_all_nodes(self, name):
        [config] = documents(MANIFESTS / "kube-scheduler" / name)
        profiles = {profile["schedulerName"]: profile for profile in config["profiles"]}
        assert profiles[names.SCHEDULER_NAME]["percentageOfNodesToScore"] == 100

    @pytest.mark.parametrize("name", ["config.yaml", "config-narrow.yaml"])
    def test_pods_that_an_older_version_has_stamped_still_find_nodes(self, name):
        config = load_configuration((MANIFESTS / "kube-scheduler" / name).read_text())
        assert config.ignored_resources == {names.SLOTS_RESOURCE}

    def test_https_is_never_without_verification(self):
        [config] = documents(MANIFESTS / "kube-scheduler" / "config-https.yaml")
        [extender] = config["extenders"]
        assert extender["enableHTTPS"] is True
        tls = extender["tlsConfig"]
        assert tls["insecure"] is False
        assert all(tls[name] for name in ("caFile", "serverName", "certFile", "keyFile"))
        assert extender["urlPrefix"].startswith(f"https://{tls['serverName']}:")

    def test_the_policy_lists_predicates_and_priorities_that_load(self):
        policy = json.loads((MANIFESTS / "kube-scheduler" / "policy.json").read_text())
        assert (policy["apiVersion"], policy["kind"]) == ("v1", "Policy")
        assert policy["predicates"]
        # 1.22 cannot read the arguments of its own NodeResourcesLeastAllocated, and does not start
        # with it.
        assert not {"LeastRequestedPriority", "MostRequestedPriority"} & {
            p["name"] for p in policy["priorities"]
        }


class TestExamples:
    POOL_FILE = documents(MANIFESTS / "examples" / "pool.yaml")
    VPOD_FILE = documents(MANIFESTS / "examples" / "vpods.yaml")

    def view(self) -> WebhookCaches:
        pools = [obj for obj in self.POOL_FILE if obj["kind"] == "AdapterPool"]
        namespaces = [
            a_namespace(obj["metadata"]["name"], **obj["metadata"].get("labels", {}))
            for obj in self.VPOD_FILE
            if obj["kind"] == "Namespace"
        ]
        return caches(pools=pools, namespaces=namespaces)

    def test_our_own_validation_accepts_them_without_a_warning(self):
        for obj in (*self.POOL_FILE, *self.VPOD_FILE):
            if obj["apiVersion"] == names.API_VERSION:
                resource = f"{obj['kind'].lower()}s"
                verdict = validate(request(obj, resource=resource), self.view(), DEFAULT_RULES)
                assert (verdict.allowed, tuple(verdict.warnings)) == (True, ())

    def test_the_statefulsets_pods_are_stamped(self):
        [stateful_set] = [obj for obj in self.POOL_FILE if obj["kind"] == "StatefulSet"]
        template = stateful_set["spec"]["template"]
        metadata = {**template["metadata"], "namespace": "adapters", "name": "dispatcher-0"}
        pod = {"metadata": metadata, "spec": template["spec"]}
        verdict = stamp(request(pod), self.view())
        assert not verdict.warnings
        assert pod_from(patched(pod, verdict.patch)).slots == 20

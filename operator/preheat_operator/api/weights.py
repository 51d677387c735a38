"""Which weights an image loads, where they can change without it: named by a person, or looked up in S3 or on Hugging Face."""

from pydantic import ConfigDict, Field

from preheat_operator.api.base import ApiModel, rule, rules


class S3Weights(ApiModel):
    """Weights below a prefix of a bucket; what is listed there decides, by names, sizes and ETags."""

    endpoint: str | None = Field(
        default=None, min_length=1, max_length=253, description="URL of the S3 server. Default: AWS."
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Region. Default: AWS_REGION of the container, else us-east-1.",
    )
    bucket: str = Field(min_length=3, max_length=63, description="Name of the bucket.")
    prefix: str = Field(default="", max_length=1024, description="What the keys begin with. Default: the whole bucket.")


class HuggingFaceWeights(ApiModel):
    """Weights in a repository of the Hugging Face Hub; the commit that the revision stands for decides."""

    repository: str = Field(min_length=1, max_length=193, description="Owner and name, such as org/model.")
    revision: str = Field(
        default="main", min_length=1, max_length=128, description="Branch, tag or commit. Default: main."
    )


class Weights(ApiModel):
    """Which weights the image loads, where they are not part of it: a change is checked, and compiled only if it must be.

    Those in S3 or on Hugging Face are looked up by a small pod of this namespace, with the variables and the service
    account of the serving container.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "[has(self.revision), has(self.s3), has(self.huggingFace)].filter(x, x).size() == 1",
                "set exactly one of revision, s3 and huggingFace",
            ),
            rule(
                "!has(self.revision) || self.revision.matches('^[!-~]+$')",
                "revision must be printable ASCII without blanks, such as a version or a digest",
            ),
            rule(
                "!has(self.s3) || !has(self.s3.endpoint) || self.s3.endpoint.matches('^https?://[^/?#@ ]+/?$')",
                "s3.endpoint must be a URL such as https://s3.example.org:9000, without credentials or a path",
            ),
            rule(
                "!has(self.s3) || self.s3.bucket.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')",
                "s3.bucket must be the name of a bucket",
            ),
            rule(
                "!has(self.huggingFace) || self.huggingFace.repository.matches('^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$')",
                "huggingFace.repository must be of the form owner/name",
            ),
            rule(
                "!has(self.huggingFace) || self.huggingFace.revision.matches('^[A-Za-z0-9_./-]+$')",
                "huggingFace.revision must be the name of a branch or tag, or a commit",
            ),
        )
    )

    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="A name for the weights as they are now; a new one says that they changed.",
    )
    s3: S3Weights | None = Field(default=None, description="Weights in S3, looked up there.")
    hugging_face: HuggingFaceWeights | None = Field(
        default=None, description="Weights on Hugging Face, looked up there."
    )
    check_interval_seconds: int = Field(
        default=600,
        ge=60,
        le=86400,
        description="Seconds between two looks at S3 or Hugging Face; each is a small pod. Default: 600.",
    )

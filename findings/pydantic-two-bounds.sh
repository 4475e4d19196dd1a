#!/usr/bin/env bash
# pydantic 2.14.4: a bound in a field's type and a narrower one in its Field() do not add up.
#
# Guess: of Field(ge=0) in Annotated and Field(ge=20) behind the equals sign, both count, or the later one.
# Seen:  only the one in the type counts: 19 is valid, and the JSON Schema says minimum 0. With the second bound in
#        Annotated, too, 19 is refused. So a type with a bound of its own, which many fields share, silently switches off
#        the narrower bounds of these fields.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv pydantic==2.14.4

seen=$(
	python - <<-'END'
		from typing import Annotated
		from pydantic import BaseModel, Field, ValidationError

		Count = Annotated[int, Field(ge=0)]

		class Model(BaseModel):
		    behind: Count = Field(default=25, ge=20)
		    inside: Annotated[Count, Field(ge=20)] = 25

		for name in Model.model_fields:
		    try:
		        result = getattr(Model(**{name: 19}), name)
		    except ValidationError:
		        result = "refused"
		    print(name, result, Model.model_json_schema()["properties"][name]["minimum"])
	END
)
expect 'value and minimum' $'behind 19 0\ninside refused 20' "$seen"

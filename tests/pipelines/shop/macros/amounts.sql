{% macro amount(column) -%}
    cast({{ column }} / 100 as decimal(16, 2))
{%- endmacro %}

{% macro key_of(columns) -%}
    md5(concat_ws('|', {% for column in columns %}coalesce(cast({{ column }} as string), ''){% if not loop.last %}, {% endif %}{% endfor %}))
{%- endmacro %}

{% for method in var('payment_methods') %}
select '{{ method }}' as method, sum({{ method }}_amount) as amount, count_if({{ method }}_amount > 0) as orders
from {{ ref('int_payments_by_order') }}
{% if not loop.last %}union all{% endif %}
{% endfor %}

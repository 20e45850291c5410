select ordered_on, count(*) as orders, sum(total) as revenue, sum(tax) as tax
from {{ ref('fct_orders') }}
where status != 'cancelled'
group by ordered_on

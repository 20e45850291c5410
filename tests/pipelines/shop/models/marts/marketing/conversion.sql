select
    cast(began_at as date) as day, count(*) as sessions,
    count(distinct case when o.order_id is not null then concat(s.visitor, '-', s.session_number) end) as with_order
from {{ ref('int_sessions') }} s
left join {{ ref('fct_orders') }} o on s.customer_id = o.customer_id and cast(s.began_at as date) = o.ordered_on
group by 1

select
    s.store_name, count(*) as payments, sum(p.refunded) as refunded,
    cast(sum(p.refunded) / nullif(sum(p.amount), 0) as decimal(10, 6)) as refund_rate
from {{ ref('fct_payments') }} p
join {{ ref('dim_stores') }} s using (store_id)
group by s.store_name
